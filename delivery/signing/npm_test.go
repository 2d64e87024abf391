package signing

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

type npmMessage struct {
	Name      string `json:"-"`
	Secret    string `json:"secret"`
	ID        string `json:"id"`
	Timestamp int64  `json:"timestamp"`
	Body      string `json:"body"` // base64
	Signature string `json:"signature"`
	Verify    bool   `json:"verify"`
}

type npmAnswer struct {
	Signature string `json:"signature"`
	Verified  bool   `json:"verified"`
	Error     string `json:"error"`
}

// TestOfficialNodeLibrary crosses with the library that most receivers use.
func TestOfficialNodeLibrary(t *testing.T) {
	t.Parallel()
	dir := installNodeLibrary(t)
	var messages []npmMessage
	for _, v := range readVectors(t).Vectors {
		// The library signs text: bytes that are not UTF-8 become U+FFFD.
		if v.Scheme != "v1" || v.Name == "invalid-utf8" {
			continue
		}
		body := v.body(t)
		secret := v.secret(t)
		encoded := base64.StdEncoding.EncodeToString(body)
		messages = append(messages, npmMessage{
			Name: v.Name, Secret: v.Secret, ID: v.ID, Timestamp: v.Timestamp, Body: encoded, Signature: v.Signature,
		})
		// Its verify parses JSON and looks at its own clock.
		if v.Interop != "ok" || !json.Valid(body) {
			continue
		}
		old, err := Generate(0)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().Unix()
		messages = append(messages, npmMessage{
			Name: v.Name + ", fresh and rotated", Secret: v.Secret, ID: v.ID, Timestamp: now, Body: encoded,
			Signature: string(Sign(nil, v.ID, now, body, old, secret)), Verify: true,
		})
	}
	answers := askNode(t, dir, messages)
	verified := 0
	for i, m := range messages {
		a := answers[i]
		switch {
		case m.Verify && !a.Verified:
			t.Errorf("%s: the Node library refuses our signature: %s", m.Name, a.Error)
		case m.Verify:
			verified++
		case a.Signature != m.Signature:
			t.Errorf("%s: the Node library signs %s, we sign %s", m.Name, a.Signature, m.Signature)
		}
	}
	if verified < 10 {
		t.Errorf("only %d messages were verified: the selection is wrong", verified)
	}
}

func askNode(t *testing.T, dir string, messages []npmMessage) []npmAnswer {
	t.Helper()
	input, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "interop.mjs")
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, &errs)
	}
	var answers []npmAnswer
	if err := json.Unmarshal(output, &answers); err != nil || len(answers) != len(messages) {
		t.Fatalf("node answered %d messages of %d: %v", len(answers), len(messages), err)
	}
	return answers
}

// installNodeLibrary returns a folder with the library at the locked version.
// It is kept between runs under the hash of what went into it.
func installNodeLibrary(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not on this machine, and CI must run this test", tool)
			}
			t.Skipf("%s is not on this machine: the official Node library was not asked", tool)
		}
	}
	files := map[string][]byte{}
	hash := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json", "interop.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", "npm", name))
		if err != nil {
			t.Fatal(err)
		}
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
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	// Installed aside and moved: another test run may be doing the same.
	dir, err := os.MkdirTemp(cache, "npm-new-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, output)
	}
	if err := os.Rename(dir, final); err != nil {
		if _, statErr := os.Stat(final); statErr != nil {
			t.Fatal(err)
		}
	}
	return final
}
