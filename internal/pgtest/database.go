package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/pgtest/server"
)

// patience bounds each step of making and dropping a database, far above what
// it takes on a machine that is busy with tests.
const patience = 2 * time.Minute

// create makes a database for a test and returns its URL and its server.
func create(t testing.TB, migrated bool) (*url.URL, server.Server) {
	t.Helper()
	shared, err := server.Use()
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(shared.URL)
	if err != nil || address.Scheme == "" {
		t.Fatalf("%s must be a URL, such as postgres://user:password@host/database", server.URLEnv)
	}
	template := "template0"
	if migrated {
		if template, err = schemaTemplate(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(slots(shared).acquire(t.Name()))

	name := databaseName(t.Name())
	address.Path = "/" + name
	err = execute(shared, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template))
	if err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	direct := address.String()
	t.Cleanup(func() { drop(t, shared, name, direct) })
	return address, shared
}

// drop drops a test's database, or says where it is.
func drop(t testing.TB, shared server.Server, name, url string) {
	t.Helper()
	if t.Failed() {
		t.Logf("its database is kept: psql '%s'", url)
		if err := shared.KeepLonger(); err != nil {
			t.Log(err)
		}
		return
	}
	// By force: a connection that the test left must not fail it here.
	if err := execute(shared, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name)); err != nil {
		t.Errorf("drop the test's database: %v", err)
	}
}

// execute runs a statement on a connection of its own: one that stayed open
// would be a leak to the tests that look for some.
func execute(shared server.Server, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, shared.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// databaseName returns a name that is new and tells which test it is of.
func databaseName(test string) string {
	const longest = 40 // with the rest below PostgreSQL's 63
	slug := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, test)
	return "postlane_" + slug[:min(len(slug), longest)] + "_" + strings.ToLower(rand.Text()[:8])
}

// limit bounds how many tests of this process have databases at once.
type limit struct {
	slots chan struct{}
	mu    sync.Mutex
	users map[string]int // databases of each top-level test that has a slot
}

// slots returns the limit of this process. `go test` runs as many processes at
// once as there are CPUs, and a database's connections are those of its pool
// and of what creates and drops it.
var slots = func() func(server.Server) *limit {
	var once sync.Once
	var l *limit
	return func(shared server.Server) *limit {
		once.Do(func() {
			const reserved = 20
			most := (maxConnections(shared) - reserved) / runtime.GOMAXPROCS(0) / (maxConns + 2)
			l = &limit{slots: make(chan struct{}, max(1, most)), users: map[string]int{}}
		})
		return l
	}
}()

// acquire waits for a slot for a test and returns what gives it back. A test
// takes one together with its subtests, or a test that waits for its subtests
// could wait for ever.
func (l *limit) acquire(test string) (release func()) {
	test, _, _ = strings.Cut(test, "/")
	l.mu.Lock()
	first := l.users[test] == 0
	l.users[test]++
	l.mu.Unlock()
	if first {
		l.slots <- struct{}{}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users[test]--; l.users[test] == 0 {
			delete(l.users, test)
			<-l.slots
		}
	}
}
