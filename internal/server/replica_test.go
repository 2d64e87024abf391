package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// log is what a server logs.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// Lists and pages come from the standby, but for who changed what it does not have yet;
// and from the primary while there is no standby.
func TestReadsFromAReplica(t *testing.T) {
	t.Parallel()
	pgtest.Program(t, "pg_basebackup")
	is := is.New(t)
	ctx := t.Context()
	primary := pgtest.NewServer(t)
	config := postgres.Config{Dir: filepath.Join(t.TempDir(), "standby"), NoSync: true}
	standby, err := postgres.StartStandby(ctx, primary.Server, "standby", config)
	is.NoErr(err)
	defer func() { _ = standby.Stop() }()
	replica, err := pgxpool.New(context.Background(), standby.URL("postgres"))
	is.NoErr(err)
	defer replica.Close()
	config.Port = int(replica.Config().ConnConfig.Port)
	said := &log{}
	r := start(t, func(o *options) {
		o.pool, o.replica, o.logger = primary.Pool, replica, slog.New(slog.NewTextHandler(said, nil))
	})
	defer func() {
		r.stop()
		is.NoErr(<-r.done)
	}()
	until := func(metric string) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ; ; <-tick.C {
			if _, text := r.do("GET", "/metrics", ""); regexp.MustCompile(`(?m)^` + metric + `$`).MatchString(text) {
				return
			}
		}
	}
	listed := func(key string) int {
		t.Helper()
		status, text := r.as(key, "GET", "/v1/subscriptions", "")
		is.Equal(status, 200)
		var v struct{ Data []any }
		is.NoErr(json.Unmarshal([]byte(text), &v))
		return len(v.Data)
	}
	subscribe := func(n int) {
		t.Helper()
		status, _ := r.do("POST", "/v1/subscriptions", fmt.Sprintf(`{"url":"http://127.0.0.1:8099/%d","tenant":"acme"}`, n))
		is.Equal(status, 201)
	}
	until("postlane_replica_read 1")
	var other struct{ Key string }
	status, text := r.do("POST", "/v1/keys", `{"name":"looks only","tenant":"acme","scope":"read"}`)
	is.Equal(status, 201)
	is.NoErr(json.Unmarshal([]byte(text), &other))
	subscribe(1)
	is.Equal(listed(operatorKey), 1) // who wrote it
	status, _ = r.do("POST", "/v1/events", `{"tenant":"acme","events":[{"type":"a.b","payload":{}}]}`)
	is.Equal(status, 201)

	// The standby stands still: others see what it has.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for listed(other.Key) != 1 {
		<-tick.C
	}
	_, err = replica.Exec(ctx, "SELECT pg_wal_replay_pause()")
	is.NoErr(err)
	var paused string
	for paused != "paused" {
		is.NoErr(replica.QueryRow(ctx, "SELECT pg_get_wal_replay_pause_state()").Scan(&paused))
	}
	subscribe(2)
	is.Equal(listed(operatorKey), 2)
	is.Equal(listed(other.Key), 1)
	until(`postlane_replica_lag_seconds [1-9].*`)
	page := console(t, r)
	is.True(strings.Contains(page(""), "Read from the replica, "))
	_, err = replica.Exec(ctx, "SELECT pg_wal_replay_resume()")
	is.NoErr(err)
	until("postlane_replica_lag_seconds 0")
	for listed(other.Key) != 2 {
		<-tick.C
	}

	// Nothing that is looked at is refused by a standby, which takes no writes.
	id := regexp.MustCompile(`sub_[0-9]+`).FindString(page("endpoints"))
	for _, path := range []string{
		"", "endpoints", "endpoints/new", "endpoints/" + id, "endpoints/" + id + "/editing", "endpoints/" + id + "/replaying?since=2026-01-01T00:00",
		"endpoints/" + id + "/streams", "endpoints/" + id + "/deleting", "deliveries", "dead", "dead/" + id, "dead/" + id + "/retrying", "streams", "outbox", "keys", "audit",
	} {
		is.True(strings.Contains(page(path), "</main>"))
		if said.has("the replica is not read") {
			t.Fatalf("/console/%s has the replica left out", path)
		}
	}

	is.NoErr(standby.Stop())
	is.Equal(listed(other.Key), 2) // at once
	until("postlane_replica_read 0")
	is.True(said.has("the replica is not read; the primary is, instead"))
	is.True(strings.Contains(page("endpoints"), "http://127.0.0.1:8099/2"))
	is.True(strings.Contains(page(""), "The replica is not read, but the primary"))
	subscribe(3)
	is.Equal(listed(other.Key), 3)

	standby, err = postgres.Start(ctx, config)
	is.NoErr(err)
	until("postlane_replica_read 1")
	is.Equal(listed(operatorKey), 3)
}

// console is a browser that is signed in as an operator, and returns pages.
func console(t *testing.T, r *running) (page func(path string) string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	r.is.NoErr(err)
	client := *r.client
	client.Jar = jar
	page = func(path string) string {
		t.Helper()
		resp, err := client.Get(r.url + "/console/" + path)
		r.is.NoErr(err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		r.is.NoErr(err)
		return string(raw)
	}
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page("sign-in"))
	resp, err := client.PostForm(r.url+"/console/sessions", url.Values{"key": {operatorKey}, "token": token[1:]})
	r.is.NoErr(err)
	resp.Body.Close()
	return page
}
