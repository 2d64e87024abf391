package pooler_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/pooler"
)

// A pooler that keeps statements prepares them by names of its own.
func TestKeptNamesAreNoticed(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"postlane_probe": false, "PGBOUNCER_0007": true} {
		is := is.New(t)
		config, err := pgx.ParseConfig(pgtest.DirectURL(t))
		is.NoErr(err)
		dial := config.DialFunc
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &renaming{Conn: conn, to: name}, err
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		is.NoErr(err)
		got, err := pooler.KeepsNames(t.Context(), conn)
		is.NoErr(err)
		is.Equal(got, kept)
		is.NoErr(conn.Close(t.Context()))
	}
}

// renaming is a connection that gives the first statement that is prepared another name
// of the same length.
type renaming struct {
	net.Conn
	to   string
	once sync.Once
}

func (r *renaming) Write(p []byte) (int, error) {
	from := []byte("postlane_probe")
	if bytes.Contains(p, from) {
		r.once.Do(func() { p = bytes.ReplaceAll(p, from, []byte(r.to)) })
	}
	return r.Conn.Write(p)
}
