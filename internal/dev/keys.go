package dev

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// key returns the random key in dir/name, and makes it at first: what is encrypted with
// it must be readable at the next start.
func key(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the key of this folder: %w", err)
	}
	raw := make([]byte, 32)
	rand.Read(raw) // never fails: crypto/rand ends the process instead
	made := base64.StdEncoding.EncodeToString(raw)
	if err := os.WriteFile(path, []byte(made+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keeping a key for this folder: %w", err)
	}
	return made, nil
}
