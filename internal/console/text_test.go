package console

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

// A shell takes every word of the command as it is, whatever an event is called.
func TestCurlIsSafeToPaste(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	evil := "a'; touch /tmp/owned; echo '$(id)`id`\"\\ \n--header 'x"
	sub := &delivery.Subscription{Settings: delivery.Settings{URL: "https://example.com/?a=" + evil}, HeaderNames: []string{"X-Own"}}
	d := &delivery.Delivery{ID: 7, EventID: evil, EventType: evil, Asset: evil}
	command := curl(sub, d, nil, 3)
	// With a curl that prints its arguments, one a line.
	said, err := exec.Command("sh", "-euc", `curl() { printf '<%s>\n' "$@"; }; `+command).CombinedOutput()
	is.NoErr(err)
	flat := strings.ReplaceAll(evil, "\n", " ")
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	is.Equal(lines[2], "<https://example.com/?a="+flat+">")
	for _, want := range []string{"<webhook-id: " + flat + ">", "<postlane-asset: " + flat + ">", "<postlane-stream-seq: 7>", "<postlane-attempt: 3>", "<X-Own: VALUE>", "<@payload.json>"} {
		is.True(strings.Contains(string(said), want+"\n")) // want
	}
	is.True(strings.Contains(command, "v1,SIGNATURE"))
}

func TestTimes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, unset := range []any{nil, time.Time{}, (*time.Time)(nil), time.Unix(0, 0)} {
		is.True(when(unset) == nil)
	}
	at := time.Date(2024, 2, 29, 23, 59, 59, 0, time.FixedZone("", 3600))
	is.Equal(when(at).Absolute, "2024-02-29 22:59:59 UTC")
	is.Equal(when(&at).Clock, "2024-02-29 22:59:59\u00a0UTC") // not today
	is.True(strings.HasSuffix(when(time.Now()).Clock, "\u00a0UTC"))
	for ago, want := range map[time.Duration]string{
		0: "now", 1500 * time.Millisecond: "now", 59 * time.Second: "59 s ago", 90 * time.Minute: "1 h ago", 50 * time.Hour: "2 d ago",
		-time.Minute: "in 1 min", -500 * time.Millisecond: "now",
	} {
		is.Equal(relative(ago), want)
	}
	for d, want := range map[time.Duration]string{
		-1: "–", 0: "0.00 ms", 1500 * time.Microsecond: "1.5 ms", 80 * time.Millisecond: "80 ms", 1234 * time.Millisecond: "1.2 s", 90 * time.Second: "1 min",
	} {
		is.Equal(duration(d), want)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(number(int64(-1234567)), "-1,234,567")
	is.Equal(number(999), "999")
	is.Equal(upTo(1000, 1000), "1,000")
	is.Equal(upTo(1000, 1001), "1,000+")
	is.Equal(percent(0, 0), "–")
	is.Equal(percent(1, 100_000), "<0.1 %")
	is.Equal(percent(99_999, 100_000), ">99.9 %")
	is.Equal(percent(1, 3), "33 %")
	is.Equal(short(10, "0123456789"), "0123456789")
	is.Equal(len([]rune(short(10, "0123456789abc"))), 10)
	is.Equal(string(addressOf(40, "https://a.example/<b>?x=1&y")), "a.example/<wbr>&lt;b&gt;?<wbr>x=<wbr>1&amp;<wbr>y")
	is.Equal(view.Printable([]byte("a\x00b\x1b[31m\xff\u202ec\n\td")), "a\uFFFDb\uFFFD[31m\uFFFD\uFFFDc\n\td")
}
