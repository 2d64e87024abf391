package verify_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/signing"
)

// snippetCase is a request for the code in docs/receiving.md.
type snippetCase struct {
	Name    string            `json:"name"`
	Secrets []string          `json:"secrets"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"` // base64
	Now     int64             `json:"now"`
	good    bool
}

// snippets are the languages of docs/receiving.md, each with what reads the cases from
// stdin and prints a list of what was accepted.
var snippets = map[string]struct {
	command []string
	file    string
	driver  string
}{
	"js": {[]string{"node"}, "verify.mjs", `
import { readFileSync } from "node:fs";
const cases = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map((c) => {
  try { verifyWebhook(c.secrets, c.headers, Buffer.from(c.body, "base64"), c.now); return true; } catch { return false; }
})));
`},
	"python": {[]string{"python3"}, "verify.py", `
import sys
def accepts(c):
    try:
        verify_webhook(c["secrets"], c["headers"], base64.b64decode(c["body"]), c["now"])
        return True
    except ValueError:
        return False
print(json.dumps([accepts(c) for c in json.load(sys.stdin)]))
`},
	"ruby": {[]string{"ruby"}, "verify.rb", `
puts JSON.generate(JSON.parse($stdin.read).map { |c|
  begin
    verify_webhook(c["secrets"], c["headers"], c["body"].unpack1("m0"), c["now"])
    true
  rescue ArgumentError
    false
  end
})
`},
	"php": {[]string{"php"}, "verify.php", `
echo json_encode(array_map(function ($c) {
    try {
        verify_webhook($c['secrets'], $c['headers'], base64_decode($c['body']), $c['now']);
        return true;
    } catch (InvalidArgumentException) {
        return false;
    }
}, json_decode(stream_get_contents(STDIN), true)));
`},
}

// TestTheSnippetsOfTheDocumentationVerify runs them, where their language is.
func TestTheSnippetsOfTheDocumentationVerify(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "receiving.md"))
	if err != nil {
		t.Fatal(err)
	}
	cases := snippetCases(t)
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	for language, s := range snippets {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(text, -1)
			is.Equal(len(blocks), 1)
			if _, err := exec.LookPath(s.command[0]); err != nil {
				if os.Getenv("POSTLANE_TEST_COMPLETE") != "" {
					t.Fatalf("%s is not on this machine, and nothing may be left out", s.command[0])
				}
				t.Skipf("%s is not on this machine", s.command[0])
			}
			file := filepath.Join(t.TempDir(), s.file)
			is.NoErr(os.WriteFile(file, append(blocks[0][1], s.driver...), 0o600))
			cmd := exec.Command(s.command[0], append(s.command[1:], file)...)
			cmd.Stdin = bytes.NewReader(input)
			var errs strings.Builder
			cmd.Stderr = &errs
			output, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, errs.String())
			}
			var accepted []bool
			is.NoErr(json.Unmarshal(output, &accepted))
			is.Equal(len(accepted), len(cases))
			for i, c := range cases {
				if accepted[i] != c.good {
					t.Errorf("%s: accepted %v, want %v", c.Name, accepted[i], c.good)
				}
			}
		})
	}
}

func snippetCases(t *testing.T) []snippetCase {
	t.Helper()
	is := is.New(t)
	secret, err := signing.Generate(0)
	is.NoErr(err)
	other, err := signing.Generate(24)
	is.NoErr(err)
	body := []byte(`{"name": "Grüße 🎉", "n":1.10}`)
	var cases []snippetCase
	add := func(name string, good bool, h hook, change func(*snippetCase)) {
		h.id, h.body = "evt_1", string(body)
		if h.secrets == nil {
			h.secrets = []signing.Secret{secret}
		}
		r := h.request()
		c := snippetCase{
			Name: name, Secrets: []string{secret.Reveal()}, Headers: map[string]string{}, Body: base64.StdEncoding.EncodeToString(body), Now: noon.Unix(), good: good,
		}
		for key := range r.Header {
			c.Headers[strings.ToLower(key)] = r.Header.Get(key)
		}
		if change != nil {
			change(&c)
		}
		// It is what package signing says, too.
		key, err := signing.Parse(c.Secrets[len(c.Secrets)-1])
		is.NoErr(err)
		raw, err := base64.StdEncoding.DecodeString(c.Body)
		is.NoErr(err)
		header := http.Header{}
		for name, value := range c.Headers {
			header.Set(name, value)
		}
		err = signing.Verify([]signing.Key{key}, signing.HeadersOf(header), raw, time.Unix(c.Now, 0), 0)
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
		cases = append(cases, c)
	}
	drop := func(name string) func(*snippetCase) { return func(c *snippetCase) { delete(c.Headers, name) } }
	set := func(name, value string) func(*snippetCase) {
		return func(c *snippetCase) { c.Headers[name] = value }
	}
	add("good", true, hook{}, nil)
	add("300 s old", true, hook{at: noon.Add(-300 * time.Second)}, nil)
	add("300 s ahead", true, hook{at: noon.Add(300 * time.Second)}, nil)
	add("301 s old", false, hook{at: noon.Add(-301 * time.Second)}, nil)
	add("301 s ahead", false, hook{at: noon.Add(301 * time.Second)}, nil)
	add("second signature", true, hook{secrets: []signing.Secret{other, secret}}, nil)
	add("second secret", true, hook{}, func(c *snippetCase) { c.Secrets = []string{other.Reveal(), secret.Reveal()} })
	add("another secret", false, hook{secrets: []signing.Secret{other}}, nil)
	add("v1a beside it", true, hook{keys: []signing.PrivateKey{signing.GeneratePrivateKey()}}, nil)
	add("another body", false, hook{}, func(c *snippetCase) { c.Body = base64.StdEncoding.EncodeToString(append(body, ' ')) })
	add("another id", false, hook{}, set("webhook-id", "evt_2"))
	add("another timestamp", false, hook{}, set("webhook-timestamp", "1700000001"))
	add("no signature", false, hook{}, drop("webhook-signature"))
	add("no id", false, hook{}, drop("webhook-id"))
	add("no timestamp", false, hook{}, drop("webhook-timestamp"))
	add("a word for a timestamp", false, hook{}, set("webhook-timestamp", "now"))
	add("a timestamp with a sign", false, hook{}, set("webhook-timestamp", "+1700000000"))
	add("a signature that is none", false, hook{}, set("webhook-signature", "v1, v1 ,, v2,AAAA"))
	return cases
}

func TestNothingButTheStandardLibraryIsNeeded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	output, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	is.NoErr(err)
	is.Equal(strings.Fields(string(output)), []string{
		"github.com/postlane-go/postlane/delivery/signing", "github.com/postlane-go/postlane/verify",
	})
}
