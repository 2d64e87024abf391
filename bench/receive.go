package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// received is what an endpoint has seen.
type received struct {
	Requests int64 `json:"requests"`
	// OutOfOrder are those that came after a later one of their stream.
	OutOfOrder int64 `json:"out_of_order"`
}

// endpoint reads a request's body, waits, and answers 204.
type endpoint struct {
	delay time.Duration
	mu    sync.Mutex
	received
	last [streams]int64
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off by the sender
	}
	e.count(number(body, "seq"), number(body, "sub"))
	time.Sleep(e.delay)
	w.WriteHeader(http.StatusNoContent)
}

func (e *endpoint) count(seq, sub int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Requests++
	if sub < 0 || sub >= streams {
		return
	}
	if seq < e.last[sub] {
		e.OutOfOrder++
	}
	e.last[sub] = max(e.last[sub], seq)
}

func (e *endpoint) seen(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = json.NewEncoder(w).Encode(e.received)
}

// runReceive is an endpoint in a process of its own. It prints its URL.
func runReceive(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("receive", flag.ContinueOnError)
	e := &endpoint{}
	flags.DurationVar(&e.delay, "delay", 0, "how long to wait before answering")
	if err := flags.Parse(args); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /seen", e.seen)
	mux.Handle("POST /", e)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Printf("http://%s\n", listener.Addr())
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// seenBy asks an endpoint what it has seen.
func seenBy(ctx context.Context, url string) (r received, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/seen", nil)
	if err != nil {
		return r, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return r, err
	}
	defer response.Body.Close()
	return r, json.NewDecoder(response.Body).Decode(&r)
}
