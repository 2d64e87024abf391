package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/internal/api/client"
	"github.com/postlane-go/postlane/internal/view"
)

// serve serves the API on a port of its own.
func (b *bundle) serve() (url string) {
	b.t.Helper()
	server := httptest.NewServer(b.api)
	b.t.Cleanup(server.Close)
	return server.URL
}

// The Go client that oapi-codegen makes of the description completes a round trip.
func TestGeneratedGoClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	is := is.New(t)
	ctx := t.Context()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c, err := client.NewClientWithResponses(b.serve(), client.WithHTTPClient(&http.Client{Transport: transport}),
		client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+b.acme)
			return nil
		}))
	is.NoErr(err)
	types := []string{"invoice.*"}
	created, err := c.CreateSubscriptionWithResponse(ctx, client.NewSubscriptionBody{Url: endpoint, EventTypes: &types})
	is.NoErr(err)
	is.True(created.JSON201 != nil)
	sub := created.JSON201
	is.True(strings.HasPrefix(sub.Secret, "whsec_"))
	is.Equal(sub.State, client.SubscriptionWithSecretState("active"))
	is.Equal(sub.Description, nil)

	asset, id := "i-1", "from-go"
	event := client.NewEvent{Id: &id, Type: "invoice.paid", Asset: &asset, Payload: map[string]any{"n": 1}}
	sent, err := c.SendEventsWithResponse(ctx, client.SendEventsBody{Events: []client.NewEvent{event}})
	is.NoErr(err)
	is.Equal(len(sent.JSON201.Data), 1)
	again, err := c.SendEventsWithResponse(ctx, client.SendEventsBody{Events: []client.NewEvent{event}})
	is.NoErr(err)
	is.True(again.JSON200.Data[0].Duplicate)

	b.settle(delivery.Failed, b.claim(1)...)
	states := []client.ListDeliveriesParamsState{"dead", "pending"}
	list, err := c.ListDeliveriesWithResponse(ctx, sub.Id, &client.ListDeliveriesParams{State: &states})
	is.NoErr(err)
	is.Equal(len(list.JSON200.Data), 1)
	is.Equal(list.JSON200.NextCursor, nil)
	dead := list.JSON200.Data[0]
	is.Equal(*dead.Asset, asset)
	retried, err := c.RetryDeliveryWithResponse(ctx, sub.Id, dead.Id)
	is.NoErr(err)
	is.Equal(string(retried.JSON200.State), "pending")
	is.Equal(retried.JSON200.SettledAt, nil)
	refused, err := c.RetryDeliveryWithResponse(ctx, sub.Id, dead.Id)
	is.NoErr(err)
	is.Equal(refused.ApplicationproblemJSONDefault.Code, "not_dead")
	shown, err := c.GetDeliveryWithResponse(ctx, sub.Id, dead.Id)
	is.NoErr(err)
	is.Equal(len(shown.JSON200.AttemptsMade), 1)
	is.Equal(len(shown.JSON200.Retries), 1)
	removed, err := c.DeleteSubscriptionWithResponse(ctx, sub.Id)
	is.NoErr(err)
	is.Equal(removed.StatusCode(), http.StatusNoContent)
}

// A program against the types that openapi-typescript makes of the description compiles
// under strict rules and completes a round trip.
func TestGeneratedTypeScriptClient(t *testing.T) {
	t.Parallel()
	dir := installNodeModules(t)
	b := setup(t)
	work := t.TempDir()
	b.is.NoErr(os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(work, "node_modules")))
	for _, name := range []string{"package.json", "tsconfig.json", "roundtrip.ts"} {
		text, err := os.ReadFile(filepath.Join("testdata", "npm", name))
		b.is.NoErr(err)
		b.is.NoErr(os.WriteFile(filepath.Join(work, name), text, 0o644))
	}
	b.is.NoErr(os.WriteFile(filepath.Join(work, "openapi.json"), b.want(200, "", "GET", "/openapi.json", nil).body, 0o644))
	run(t, work, "node", "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "schema.d.ts")
	run(t, work, "node", "node_modules/typescript/bin/tsc", "-p", ".")
	b.is.True(strings.Contains(run(t, work, "node", "out/roundtrip.js", b.serve(), b.acme, endpoint), "round trip complete"))
}

// The snippet that comes with a new secret accepts what we sign, and nothing else.
func TestSnippetVerifies(t *testing.T) {
	t.Parallel()
	needNode(t, "node")
	is := is.New(t)
	work := t.TempDir()
	is.NoErr(os.WriteFile(filepath.Join(work, "verify.mjs"), []byte(view.SigningExplained.Snippet), 0o644))
	is.NoErr(os.WriteFile(filepath.Join(work, "main.mjs"), []byte(`
import { verify } from "./verify.mjs";
const now = Math.floor(Date.now() / 1000);
const { secret, body, signatures } = JSON.parse(process.argv[2]);
const answers = {};
for (const [name, s] of Object.entries(signatures)) {
  try { verify(secret, { "webhook-id": "evt_1", "webhook-timestamp": String(s.timestamp), "webhook-signature": s.signature }, Buffer.from(s.body ?? body)); answers[name] = "fine"; }
  catch (e) { answers[name] = e.message; }
}
console.log(JSON.stringify(answers));
`), 0o644))
	secret, err := signing.Generate(0)
	is.NoErr(err)
	other, err := signing.Generate(0)
	is.NoErr(err)
	body := []byte(`{"é":1}`)
	now := time.Now().Unix()
	type signature struct {
		Timestamp any    `json:"timestamp"`
		Signature string `json:"signature"`
		Body      string `json:"body,omitempty"`
	}
	signed := func(at int64, by ...signing.Secret) string {
		return string(signing.Sign(nil, "evt_1", at, body, by...))
	}
	input, err := json.Marshal(map[string]any{"secret": secret.Reveal(), "body": string(body), "signatures": map[string]signature{
		"fits": {now, signed(now, secret), ""}, "one of two": {now, signed(now, other, secret), ""}, "with v1a": {now, "v1a,AAAA " + signed(now, secret), ""},
		"another secret": {now, signed(now, other), ""}, "old": {now - 400, signed(now-400, secret), ""}, "future": {now + 400, signed(now+400, secret), ""},
		"other body": {now, signed(now, secret), `{"é":2}`}, "other time": {now - 1, signed(now, secret), ""}, "nothing": {now, "", ""}, "no time": {"x", signed(now, secret), ""},
	}})
	is.NoErr(err)
	var answers map[string]string
	is.NoErr(json.Unmarshal([]byte(run(t, work, "node", "main.mjs", string(input))), &answers))
	is.Equal(answers, map[string]string{
		"fits": "fine", "one of two": "fine", "with v1a": "fine", "another secret": "no signature fits", "old": "too old, or from the future",
		"future": "too old, or from the future", "other body": "no signature fits", "other time": "no signature fits", "nothing": "no signature fits",
		"no time": "too old, or from the future",
	})
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// needNode skips the test where a tool of Node is missing, but not in CI.
func needNode(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not on this machine, and CI must run this test", tool)
			}
			t.Skipf("%s is not on this machine", tool)
		}
	}
}

// installNodeModules returns a folder with what testdata/npm locks, kept between runs.
func installNodeModules(t *testing.T) string {
	t.Helper()
	needNode(t, "node", "npm")
	is := is.New(t)
	hash := sha256.New()
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", "npm", name))
		is.NoErr(err)
		files[name] = text
		hash.Write(text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "postlane-test")
	final := filepath.Join(cache, "npm-"+hex.EncodeToString(hash.Sum(nil)[:8]))
	if _, err := os.Stat(final); err == nil {
		return final
	}
	is.NoErr(os.MkdirAll(cache, 0o755))
	// Installed aside and moved: another test run may be doing the same.
	dir, err := os.MkdirTemp(cache, "npm-new-")
	is.NoErr(err)
	defer os.RemoveAll(dir)
	for name, text := range files {
		is.NoErr(os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	run(t, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	if err := os.Rename(dir, final); err != nil {
		_, statErr := os.Stat(final)
		is.NoErr(statErr)
	}
	return final
}
