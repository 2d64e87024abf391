// Package roles holds deploy/roles.sql to what it says: each role can do its part, through
// the packages that do it, and nothing else.
package roles_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database has the roles, under names of its own: roles are the server's.
type database struct {
	*pgxpool.Pool

	t      *testing.T
	is     *is.I
	ctx    context.Context
	prefix string
	log    log
}

// nobody is a role that the file does not know.
const nobody = "nobody"

var roles = []string{"owner", "app", "dispatcher", "relay", "operator", "retention", "server", nobody}

func setup(t *testing.T) *database {
	t.Helper()
	d := &database{Pool: pgtest.New(t), t: t, is: is.New(t), ctx: t.Context(), prefix: "postlane" + strings.ToLower(rand.Text()[:8]) + "_"}
	t.Cleanup(func() {
		for _, role := range roles {
			_, err := d.Exec(context.Background(), "DROP OWNED BY "+d.prefix+role+" CASCADE")
			d.is.NoErr(err)
			_, err = d.Exec(context.Background(), "DROP ROLE "+d.prefix+role)
			d.is.NoErr(err)
		}
	})
	_, err := d.Exec(d.ctx, "CREATE ROLE "+d.prefix+nobody)
	d.is.NoErr(err)
	d.grant()
	return d
}

// grant runs the file.
func (d *database) grant() {
	d.t.Helper()
	text, err := os.ReadFile("../../deploy/roles.sql")
	d.is.NoErr(err)
	_, err = d.Exec(d.ctx, strings.ReplaceAll(string(text), "postlane_", d.prefix))
	d.is.NoErr(err)
}

// as returns a pool of a role.
func (d *database) as(role string) *pgxpool.Pool {
	d.t.Helper()
	config := d.Config()
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["role"] = d.prefix + role
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	d.is.NoErr(err)
	d.t.Cleanup(pool.Close)
	return pool
}

// store returns the store of a role. In development's policy, for receivers on loopback.
func (d *database) store(pool *pgxpool.Pool) *delivery.Store {
	d.t.Helper()
	keyring, err := delivery.NewKeyring(make([]byte, delivery.KeySize))
	d.is.NoErr(err)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: d.guard(), Keyring: keyring})
	d.is.NoErr(err)
	return store
}

func (d *database) guard() *guard.Guard {
	d.t.Helper()
	g, err := guard.New(guard.Policy{Development: true})
	d.is.NoErr(err)
	return g
}

// logger is for what runs in the background and would only log what it may not do.
func (d *database) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&d.log, nil)) }

// nothingRefused fails the test if the log tells of a right that was missing.
func (d *database) nothingRefused() {
	d.t.Helper()
	if text := d.log.String(); strings.Contains(text, "permission denied") || strings.Contains(text, "42501") {
		d.t.Fatal(text)
	}
}

type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
