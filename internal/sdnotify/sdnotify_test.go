package sdnotify_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/sdnotify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// systemd is a socket that notifications go to.
func systemd(t *testing.T, address string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	return conn
}

func read(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 1000)
	n, err := conn.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestNotificationsArrive(t *testing.T) {
	is := is.New(t)
	conn := systemd(t, filepath.Join(t.TempDir(), "notify"))
	is.NoErr(sdnotify.FromEnv().Notify("READY=1"))
	is.Equal(read(t, conn), "READY=1")

	abstract := systemd(t, "@postlane-test-"+strconv.Itoa(os.Getpid()))
	is.NoErr(sdnotify.FromEnv().Notify("STOPPING=1\nSTATUS=draining"))
	is.Equal(read(t, abstract), "STOPPING=1\nSTATUS=draining")

	t.Setenv("NOTIFY_SOCKET", "")
	is.NoErr(sdnotify.FromEnv().Notify("READY=1"))
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	is.True(sdnotify.FromEnv().Notify("READY=1") != nil)
}

func TestTheWatchdogIsFedWhileAlive(t *testing.T) {
	is := is.New(t)
	conn := systemd(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sdnotify.FromEnv().Watch(ctx, func(ctx context.Context) error {
			_, bounded := ctx.Deadline()
			is.True(bounded)
			if asked++; asked%2 == 0 {
				return errors.New("it hangs")
			}
			if asked > 5 {
				cancel()
			}
			return nil
		})
	}()
	<-ended
	// Asked seven times, of which four were good.
	is.NoErr(sdnotify.FromEnv().Notify("end"))
	for range 4 {
		is.Equal(read(t, conn), "WATCHDOG=1")
	}
	is.Equal(read(t, conn), "end")
}

func TestNoWatchdog(t *testing.T) {
	systemd(t, filepath.Join(t.TempDir(), "notify"))
	asked := func(context.Context) error { return errors.New("asked") }
	t.Setenv("WATCHDOG_PID", "1")
	t.Setenv("WATCHDOG_USEC", "1000")
	sdnotify.FromEnv().Watch(context.Background(), asked) // another process's: returns
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("WATCHDOG_USEC", "0")
	sdnotify.FromEnv().Watch(context.Background(), asked)
}
