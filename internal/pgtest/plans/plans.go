// Package plans tells a test what PostgreSQL did for each statement that was sent:
// the real ones, as the code under test sends them. Looked at is which tables were
// read whole, how many rows a scan or a sort met, and how many pages were touched;
// never a time.
package plans

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// Plan is what PostgreSQL did for a statement.
type Plan struct {
	Query string `json:"Query Text"`
	Root  Node   `json:"Plan"`
}

// Node is a node of a plan.
type Node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Cond     string  `json:"Index Cond"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Recheck  float64 `json:"Rows Removed by Index Recheck"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []Node  `json:"Plans"`
}

// Name is the name that the query has in db/queries.
func (p *Plan) Name() string {
	_, rest, _ := strings.Cut(p.Query, "-- name: ")
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// All returns every node of a plan.
func (n *Node) All() []*Node {
	list := []*Node{n}
	for i := range n.Plans {
		list = append(list, n.Plans[i].All()...)
	}
	return list
}

// Met is how many rows a node came across.
func (n *Node) Met() int { return int((n.Rows + n.Filtered + n.Recheck) * n.Loops) }

func (n *Node) String() string {
	return fmt.Sprintf("%s on %s %s (%s), %d rows in %v loops", n.Type, n.Relation, n.Index, n.Cond, n.Met(), n.Loops)
}

// Log collects the plans of a pool's statements.
type Log struct {
	mu    sync.Mutex
	on    bool
	plans []Plan
	bad   error
}

// New returns a pool of two connections to a new database that has the schema, and
// the log of its plans. auto_explain tells these sessions what each statement did.
func New(t testing.TB) (*pgxpool.Pool, *Log) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.DirectURL(t))
	if err != nil {
		t.Fatal(err)
	}
	l := &Log{}
	config.MaxConns = 2
	config.ConnConfig.OnNotice = l.notice
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		for _, sql := range []string{
			"LOAD 'auto_explain'", "SET auto_explain.log_min_duration = 0", "SET auto_explain.log_analyze = on",
			"SET auto_explain.log_buffers = on", "SET auto_explain.log_timing = off", "SET auto_explain.log_format = json",
			"SET client_min_messages = log",
		} {
			if _, err := c.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if l.bad != nil {
			t.Errorf("a plan could not be read: %v", l.bad)
		}
	})
	return pool, l
}

func (l *Log) notice(_ *pgconn.PgConn, n *pgconn.Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, text, found := strings.Cut(n.Message, "plan:\n")
	if !l.on || !found {
		return
	}
	var p Plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		l.bad = err
		return
	}
	if p.Name() != "" {
		l.plans = append(l.plans, p)
	}
}

// During returns the plans of what f sends.
func (l *Log) During(f func()) []Plan {
	l.mu.Lock()
	l.on, l.plans = true, nil
	l.mu.Unlock()
	f()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = false
	return l.plans
}

// Touched is how many pages the plans of a query touched.
func Touched(list []Plan, name string) (pages int) {
	for i := range list {
		if p := &list[i]; p.Name() == name {
			pages += p.Root.Hit + p.Root.Read
		}
	}
	return pages
}

// Cheap fails the test where a plan reads a table whole, unless allowed says that it
// may, or meets more than most rows in one of its scans, sorts or hashes; and where no
// plan of one of the named queries was seen.
func Cheap(t testing.TB, what string, most int, allowed func(p *Plan, n *Node) bool, list []Plan, names ...string) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(list, func(p Plan) bool { return p.Name() == name }) {
			t.Errorf("%s: no plan of %s was seen", what, name)
		}
	}
	for i := range list {
		p := &list[i]
		for _, n := range p.Root.All() {
			scans := strings.Contains(n.Type, "Scan") && n.Relation != ""
			switch {
			case n.Type == "Seq Scan" && !allowed(p, n):
				t.Errorf("%s: %s reads a table whole: %v", what, p.Name(), n)
			case (scans || strings.Contains(n.Type, "Sort") || strings.Contains(n.Type, "Hash")) && n.Met() > most:
				t.Errorf("%s: %s meets too many rows: %v", what, p.Name(), n)
			}
		}
	}
}
