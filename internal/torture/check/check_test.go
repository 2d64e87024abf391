package check_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/torture/check"
	"github.com/postlane-go/postlane/internal/torture/journal"
)

// story is a run that a test makes up. Its times are in milliseconds; its subscription
// has the path /s and was made at 1.
type story struct {
	t        *testing.T
	dir      string
	receiver *journal.Writer
	harness  *journal.Writer
	producer *journal.Writer
	requests int64
}

const secret = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"

func tell(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, dir: t.TempDir()}
	for name, w := range map[string]**journal.Writer{"receiver": &s.receiver, "harness": &s.harness, "producer": &s.producer} {
		var err error
		if *w, err = journal.Create(filepath.Join(s.dir, name+".jsonl"), false); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*w).Close() })
	}
	s.write(s.harness,
		journal.Line{Run: &journal.Run{Seed: 7, Lease: 4 * time.Second, Timeout: 1500 * time.Millisecond}},
		journal.Line{Subscription: &journal.Subscription{Path: "/s", Receiver: "r", Types: []string{"a.*"}, Began: at(0), Ended: at(1)}},
		journal.Line{Secret: &journal.Secret{Path: "/s", Secret: secret}})
	return s
}

func at(ms int64) int64 { return ms * int64(time.Millisecond) }

func (s *story) write(w *journal.Writer, lines ...journal.Line) {
	s.t.Helper()
	if err := w.Write(lines...); err != nil {
		s.t.Fatal(err)
	}
}

func event(id, asset string) journal.Event {
	return journal.Event{ID: id, Type: "a.b", Asset: asset, Route: journal.Direct, Nonce: 5, Size: 100}
}

// commits tells of a transaction from began to ended.
func (s *story) commits(tx string, began, ended int64, events ...journal.Event) {
	s.t.Helper()
	s.ends(tx, journal.Committed, began, ended, events...)
	s.write(s.harness, journal.Line{Commit: &journal.Commit{Tx: tx}})
}

func (s *story) ends(tx, outcome string, began, ended int64, events ...journal.Event) {
	s.t.Helper()
	s.write(s.producer, journal.Line{Intent: &journal.Intent{Tx: tx, Began: at(began), Events: events}},
		journal.Line{Outcome: &journal.Outcome{Tx: tx, At: at(ended), Outcome: outcome}})
}

// arrives tells of a request that a worker sent, which was answered.
func (s *story) arrives(e journal.Event, worker string, began, ended int64, status int) {
	s.t.Helper()
	s.arrival(e, worker, began, journal.End{At: at(ended), Status: status, How: journal.Answered}, nil)
}

func (s *story) arrival(e journal.Event, worker string, began int64, end journal.End, change func(*journal.Start)) {
	s.t.Helper()
	s.requests++
	payload := journal.Payload(e.Nonce, e.Size)
	hash := sha256.Sum256(payload)
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", e.ID, 99, payload)
	start := journal.Start{
		Number: s.requests, At: at(began), Path: "/s", ID: e.ID, Type: e.Type, Asset: e.Asset, Worker: worker, Timestamp: "99",
		Signature: "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), Hash: hex.EncodeToString(hash[:]),
	}
	if change != nil {
		change(&start)
	}
	s.write(s.receiver, journal.Line{Start: &start})
	if end.How != "" {
		end.Number = s.requests
		s.write(s.receiver, journal.Line{End: &end})
	}
}

func (s *story) fault(kind, target string, began, ended int64) {
	s.t.Helper()
	s.write(s.harness, journal.Line{Fault: &journal.Fault{Kind: kind, Target: target, Began: at(began), Ended: at(ended)}})
}

func (s *story) state(e journal.Event, state string) {
	s.t.Helper()
	s.write(s.harness, journal.Line{State: &journal.State{Path: "/s", Event: e.ID, State: state}})
}

func (s *story) changes(what string, began, ended int64) {
	s.t.Helper()
	s.write(s.harness, journal.Line{Change: &journal.Change{Path: "/s", What: what, Began: at(began), Ended: at(ended)}})
}

// judged compares the figures that are not 0 with what is expected, but for those that
// say how much there was.
func (s *story) judged(want map[string]int) {
	s.t.Helper()
	is := is.New(s.t)
	is.Helper()
	report, err := check.Dir(s.dir)
	is.NoErr(err)
	text, err := json.Marshal(report)
	is.NoErr(err)
	var all map[string]any
	is.NoErr(json.Unmarshal(text, &all))
	got := map[string]int{}
	ok := true
	for name, v := range all {
		if n, number := v.(float64); number && n != 0 && name != "seed" && name != "events" && name != "requests" {
			got[name] = int(n)
			switch name {
			case "retries", "explained_overlaps", "explained_duplicates", "unknown_commits", "dead", "discarded":
			default:
				ok = false
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Fatalf("got %v, want %v; %q", got, want, report.Findings)
	}
	is.Equal(report.OK(), ok)
}

func TestAllIsWell(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := tell(t)
	a, b := event("a", "x"), event("b", "x")
	s.commits("1", 10, 20, a, b)
	s.arrives(a, "w1", 30, 40, 200)
	s.arrives(b, "w2", 50, 60, 204)
	s.state(a, journal.Delivered)
	s.state(b, journal.Delivered)
	s.judged(map[string]int{})
	report, err := check.Dir(s.dir)
	is.NoErr(err)
	is.Equal(report.Seed, uint64(7))
	is.Equal(report.Events, 2)
	is.Equal(report.Requests, 2)
}

func TestLost(t *testing.T) {
	t.Parallel()
	s := tell(t)
	never, refused, claimed := event("never", "x"), event("refused", "y"), event("claimed", "z")
	s.commits("1", 10, 20, never, refused, claimed)
	s.arrives(refused, "w1", 30, 40, 500)
	s.state(claimed, journal.Delivered) // says the database, and nobody saw it
	s.judged(map[string]int{"lost": 3})
}

func TestWhatNeedNotArriveIsNotLost(t *testing.T) {
	t.Parallel()
	s := tell(t)
	other := event("other", "x")
	other.Type = "b.c"
	dead, discarded := event("dead", "x"), event("discarded", "y")
	s.commits("1", 10, 20, other, dead, discarded)
	s.commits("0", 0, 20, event("before", "z")) // began before the subscription was made
	s.ends("2", journal.RolledBack, 10, 20, event("back", "x"))
	s.ends("3", journal.Unknown, 10, 20, event("unknown", "x"))
	s.state(dead, journal.Dead)
	s.state(discarded, journal.Discarded)
	s.judged(map[string]int{"dead": 1, "discarded": 1, "unknown_commits": 1})
}

func TestWhatOnlyTheDatabaseKnowsIsOwed(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.ends("1", journal.Unknown, 10, 20, event("a", "x"))
	s.write(s.harness, journal.Line{Commit: &journal.Commit{Tx: "1"}})
	s.judged(map[string]int{"lost": 1, "unknown_commits": 1})
}

func TestStuck(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a := event("a", "x")
	s.commits("1", 10, 20, a)
	s.state(a, journal.Pending)
	s.judged(map[string]int{"stuck": 1})
}

func TestVanished(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.ends("1", journal.Committed, 10, 20)
	s.judged(map[string]int{"vanished": 1})
}

func TestPhantom(t *testing.T) {
	t.Parallel()
	s := tell(t)
	back, undone, unwanted, lost := event("back", "a"), event("undone", "b"), event("unwanted", "c"), event("lost", "d")
	unwanted.Type = "b.c"
	s.ends("1", journal.RolledBack, 10, 20, back)
	s.ends("2", journal.Unknown, 10, 20, lost)
	s.commits("3", 10, 20, unwanted)
	early, relayed := event("early", "e"), event("relayed", "f")
	relayed.Route = journal.Staged
	s.commits("0", -20, -10, early, relayed) // before the subscription was made
	s.arrives(early, "w1", 30, 40, 200)
	s.arrives(relayed, "w1", 30, 40, 200) // but a relay wrote it afterwards
	s.write(s.producer, journal.Line{Intent: &journal.Intent{Tx: "3", Began: at(10), Events: []journal.Event{unwanted}, Undone: []journal.Event{undone}}})
	for i, e := range []journal.Event{back, undone, unwanted, lost} {
		s.arrives(e, "w1", int64(30+i), int64(40+i), 200)
	}
	s.judged(map[string]int{"phantom": 5, "unknown_commits": 1})
}

func TestCorruptAndBadlySigned(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b, c := event("a", "a"), event("b", "b"), event("c", "c")
	s.commits("1", 10, 20, a, b, c)
	end := journal.End{At: at(40), Status: 200, How: journal.Answered}
	s.arrival(a, "w1", 30, end, func(r *journal.Start) { r.Hash = "00" })
	s.arrival(b, "w1", 30, end, func(r *journal.Start) { r.Type = "a.c" })
	s.arrival(c, "w1", 30, end, func(r *journal.Start) { r.Timestamp = "98" })
	s.judged(map[string]int{"corrupt": 2, "bad_signatures": 1})
}

func TestSecretsAndPayloadsInLogs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := tell(t)
	is.NoErr(os.Mkdir(filepath.Join(s.dir, "data"), 0o755))
	is.NoErr(os.WriteFile(filepath.Join(s.dir, "worker.log"), []byte("fine\nthe key is "+secret+"\n"), 0o600))
	is.NoErr(os.WriteFile(filepath.Join(s.dir, "data", "server.log"), append(journal.Payload(1, 10), "\nthis is a bug"...), 0o600))
	s.judged(map[string]int{"leaks": 2, "bugs": 1})
}
