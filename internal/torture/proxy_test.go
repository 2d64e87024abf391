package torture

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/matryer/is"
)

// dial connects to an echo through a proxy.
func dial(t *testing.T) (*proxy, net.Conn) {
	t.Helper()
	is := is.New(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	p, err := newProxy(func() string { return echo.Addr().String() })
	is.NoErr(err)
	t.Cleanup(p.close)
	conn, err := net.Dial("tcp", p.addr())
	is.NoErr(err)
	t.Cleanup(func() { conn.Close() })
	return p, conn
}

// echoed sends a word and returns what comes back.
func echoed(conn net.Conn, patience time.Duration) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("word")); err != nil {
		return "", err
	}
	b := make([]byte, 4)
	_, err := io.ReadFull(conn, b)
	return string(b), err
}

func TestAProxyPassesAndCuts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, conn := dial(t)
	said, err := echoed(conn, time.Minute)
	is.NoErr(err)
	is.Equal(said, "word")
	p.cut()
	_, err = echoed(conn, time.Minute)
	is.True(err != nil)
	again, err := net.Dial("tcp", p.addr())
	is.NoErr(err)
	defer again.Close()
	_, err = echoed(again, time.Minute)
	is.NoErr(err)
}

func TestWhatAProxySwallowsPassesLater(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p, conn := dial(t)
	_, err := echoed(conn, time.Minute)
	is.NoErr(err)
	end := p.swallow()
	_, err = echoed(conn, 50*time.Millisecond)
	is.True(err != nil) // nobody answers, and nobody says no
	end()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 4)
	_, err = io.ReadFull(conn, b)
	is.NoErr(err)
	is.Equal(string(b), "word")
}
