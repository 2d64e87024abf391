package console

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/postlane-go/postlane/internal/keys"
)

// A range is chosen, counted, confirmed and replayed; pressing the button again replays
// nothing more.
func TestReplayARange(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook")
	s.enqueue("acme", "thing.done", "a", "a", "b")
	path := endpointPath(sub.ID)
	v := s.signedIn(s.key("acme", keys.Write))
	v.has(path, "Replay events")
	v.has(path+"/replaying", "Written since")
	p := v.has(path+"/replaying?since=2026-01-01T00:00&event_types=thing.*", "3 events of this range match", "is no longer kept", "Replay 3")
	v.has(path+"/replaying?since=2026-01-01T00:00&event_types=other.*", "0 events of this range match")
	s.is.Equal(v.get(path+"/replaying?since=yesterday").status, http.StatusBadRequest)
	s.is.Equal(v.get(path+"/replaying?since=2026-01-01T00:00&event_types=a*").status, http.StatusBadRequest)
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.replays"), 0)

	var form []string
	for _, m := range regexp.MustCompile(`<input type="hidden" name="(id|since|until|event_types)" value="([^"]*)">`).FindAllStringSubmatch(p.body, -1) {
		form = append(form, m[1], m[2])
	}
	s.is.Equal(len(form), 8)
	for range 2 {
		v.in(v.press(path+"/replay", form...), "3 events replayed", "Watch the deliveries")
	}
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.deliveries"), 6)
	v.has("audit", "replay-events", "3 deliveries, done")
	v.has(path+"/deliveries/dlv_"+one[string](s, "SELECT max(seq)::text FROM postlane.deliveries"), "Replay "+form[1], "asked for by")
	s.is.Equal(v.press(path+"/replay", append(form[:2:2], "since", "2026-01-02T00:00")...).status, http.StatusConflict)

	reader := s.signedIn(s.key("acme", keys.Read))
	reader.has(path+"/replaying?since=2026-01-01T00:00", "Your key may only read")
	s.is.Equal(reader.press(path+"/replay", form...).status, http.StatusForbidden)
	s.is.Equal(s.signedIn(s.key("other", keys.Write)).get(path+"/replaying").status, http.StatusNotFound)
}
