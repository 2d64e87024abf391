package sender_test

import (
	"bytes"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// proxyConnections counts what reaches the proxy that the environment names
// for the whole run: net/http reads those variables once per process.
var proxyConnections atomic.Int64

// standardLog holds what the run writes through the global log package.
var standardLog lockedBuffer

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	log.SetOutput(&standardLog)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "listen on loopback:", err)
		return 1
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := proxy.Accept()
			if err != nil {
				return
			}
			proxyConnections.Add(1)
			c.Close()
		}
	}()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		os.Setenv(name, "http://"+proxy.Addr().String())
	}
	os.Unsetenv("NO_PROXY")
	os.Unsetenv("no_proxy")

	code := m.Run()
	proxy.Close()
	<-done
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			return 1
		}
	}
	return code
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
