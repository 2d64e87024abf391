package sender

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/guard"
)

func TestF07_NamesAreAskedForAbsolutely(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(absolute("hooks.example.com"), "hooks.example.com.")
	is.Equal(absolute("hooks.example.com."), "hooks.example.com.")
	is.Equal(absolute("receiver"), "receiver")
}

// TestBC36_TheSocketIsJudgedToo takes away the check of the resolved addresses:
// what is left, at the socket, must hold alone.
func TestBC36_TheSocketIsJudgedToo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	canary, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer canary.Close()
	config, err := Config{}.withDefaults()
	is.NoErr(err)
	d := newDialer(config)
	for _, addrs := range [][]string{{canary.Addr().String()}, {canary.Addr().String(), "[::1]:443"}} {
		conn, err := d.race(context.Background(), addrs)
		is.True(conn == nil)
		is.True(errors.Is(err, guard.ErrRefused))
	}
}

func TestRaceReportsTheErrorThatSaysMost(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("connecting to the broadcast address fails at once on Linux only")
	}
	is := is.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	refusing := l.Addr().String()
	l.Close()
	const unreachable = "255.255.255.255:80"
	d := &dialer{timeout: time.Second}
	for _, addrs := range [][]string{{refusing, unreachable}, {unreachable, refusing}} {
		_, err := d.race(context.Background(), addrs)
		is.True(errors.Is(err, syscall.ECONNREFUSED))
	}
	_, err = d.race(context.Background(), []string{unreachable, unreachable})
	is.True(isUnreachable(err))
}

func TestF16_EveryConnectionHasADeadline(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	newTry(time.Millisecond).gotConn(httptrace.GotConnInfo{Conn: near})
	_, err := near.Read(make([]byte, 1))
	var timeout net.Error
	is.True(errors.As(err, &timeout) && timeout.Timeout())
}
