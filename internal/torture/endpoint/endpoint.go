// Package endpoint is a process that receives webhooks, behaves as badly as it is told,
// and writes down what it saw. It judges nothing.
package endpoint

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// Config is what an endpoint's process is told.
type Config struct {
	// Name is its journal's. A process that comes back has another one.
	Name   string
	Dir    string
	Listen string
	// Timeout is the senders': what is late is later than that.
	Timeout time.Duration
}

// Mode is how a path answers.
type Mode string

const (
	Well  Mode = "well"  // 200, in some milliseconds
	Hang  Mode = "hang"  // not at all
	Reset Mode = "reset" // the connection is reset when the request has been read
	Drip  Mode = "drip"  // 200, and a body of a byte a moment
	Late  Mode = "late"  // 200, when the sender has left
	Error Mode = "error" // 500
	Flaky Mode = "flaky" // 503, a redirect, or 200
	Gone  Mode = "gone"  // 410
)

type endpoint struct {
	config Config
	log    *journal.Writer
	count  atomic.Int64
	mu     sync.Mutex
	modes  map[string]Mode
}

// Run serves until ctx ends. Each line of commands sets the mode of a path: "/path mode".
func Run(ctx context.Context, c Config, commands io.Reader) error {
	log, err := journal.Create(filepath.Join(c.Dir, c.Name+".jsonl"), false)
	if err != nil {
		return err
	}
	defer log.Close()
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	e := &endpoint{config: c, log: log, modes: map[string]Mode{}}
	go e.obey(commands)
	server := http.Server{Handler: e, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

func (e *endpoint) obey(commands io.Reader) {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		path, mode, _ := strings.Cut(lines.Text(), " ")
		e.mu.Lock()
		e.modes[path] = Mode(mode)
		e.mu.Unlock()
	}
}

func (e *endpoint) mode(path string) Mode {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.modes[path]
}

// ServeHTTP writes a request down, before and after it is answered.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := journal.Start{Number: e.count.Add(1), At: journal.Now(), Path: r.URL.Path}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was never a whole request
	}
	h := r.Header
	s.ID, s.Timestamp, s.Signature = h.Get("webhook-id"), h.Get("webhook-timestamp"), h.Get("webhook-signature")
	s.Type, s.Asset, s.Attempt, s.Worker = h.Get("postlane-event-type"), h.Get("postlane-asset"), h.Get("postlane-attempt"), h.Get("user-agent")
	hash := sha256.Sum256(body)
	s.Hash = hex.EncodeToString(hash[:])
	a := &answer{w: w, r: r, end: journal.End{Number: s.Number}, finish: func(end journal.End) { e.write(journal.Line{End: &end}) }}
	e.write(journal.Line{Start: &s})
	a.give(e.mode(s.Path), s.Number, e.config.Timeout)
}

func (e *endpoint) write(l journal.Line) {
	if err := e.log.Write(l); err != nil {
		panic(fmt.Sprint("the journal cannot be written: ", err))
	}
}
