package api_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/api"
)

// piped is a listener with one connection.
type piped struct {
	conn   chan net.Conn
	closed chan struct{}
	close  func()
}

func pipe() (*piped, net.Conn) {
	client, server := net.Pipe()
	p := &piped{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	p.conn <- server
	return p, client
}

func (p *piped) Accept() (net.Conn, error) {
	select {
	case c := <-p.conn:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *piped) Close() error {
	p.close()
	return nil
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

// Whoever sends a body drop by drop is told so in time, and holds nothing after.
func TestABodyHasToArriveInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		away, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nowhere?sslmode=disable") // not asked before the body is there
		is.NoErr(err)
		defer away.Close()
		store, err := delivery.NewStore(away, delivery.StoreConfig{})
		is.NoErr(err)
		snd, err := sender.New(sender.Config{})
		is.NoErr(err)
		defer snd.Close()
		v1, err := api.New(api.Config{Pool: away, Store: store, Sender: snd, OperatorKey: operatorKey, Logger: slog.New(slog.DiscardHandler)})
		is.NoErr(err)
		listener, client := pipe()
		server := http.Server{Handler: v1}
		done := make(chan error, 1)
		go func() { done <- server.Serve(listener) }()
		began := time.Now()
		_, err = fmt.Fprintf(client, "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", operatorKey)
		is.NoErr(err)
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		is.NoErr(err)
		text, err := io.ReadAll(answer.Body)
		is.NoErr(err)
		is.Equal(answer.StatusCode, http.StatusRequestTimeout)
		is.True(strings.Contains(string(text), `"code":"timeout"`))
		is.True(time.Since(began) < 20*time.Second) // of the bubble's time
		is.NoErr(client.Close())
		is.NoErr(server.Close())
		is.Equal(<-done, http.ErrServerClosed)
	})
}
