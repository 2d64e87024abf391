package sender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/postlane-go/postlane/delivery/guard"
)

const (
	// headStart is how long an address is tried alone before the next one
	// joins in (RFC 8305, section 5, recommends 250 ms).
	headStart = 250 * time.Millisecond

	// maxAddrs is how many addresses of a name are tried: a name with hundreds
	// must not open hundreds of sockets.
	maxAddrs = 8
)

var errConnectTimeout = errors.New("sender: no connection within ConnectTimeout")

// dialer resolves a name itself and dials addresses only, so that each can be
// judged, and so that a failure tells name lookup, refusal and connection
// apart. net.Dialer, given a name, reports its first error alone: a refused
// address hides that the allowed one timed out.
type dialer struct {
	guard    *guard.Guard
	resolver *net.Resolver
	timeout  time.Duration
	tcp      net.Dialer
}

func newDialer(c Config) *dialer {
	return &dialer{
		guard:    c.Guard,
		resolver: c.Resolver,
		timeout:  c.ConnectTimeout,
		tcp:      net.Dialer{Control: c.Guard.Control},
	}
}

// DialContext is for http.Transport. The context it gets there is not ended by
// the request's: a dial goes on for the pool's sake, up to the timeout.
func (d *dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	try := tryOf(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, errConnectTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	try.enter(resolving)
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	try.enter(connecting)
	conn, err := d.dialAllowed(ctx, addrs, port)
	if err != nil {
		return nil, err
	}
	try.enter(connected)
	return conn, nil
}

func (d *dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	addrs, err := d.resolver.LookupNetIP(ctx, "ip", absolute(host))
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	return addrs, err
}

// absolute returns the name with a final dot, which keeps the resolver from
// trying it below this machine's own search domains first (ndots in Kubernetes
// pods). A single label, which only development allows, needs those.
func absolute(host string) string {
	if strings.Contains(host, ".") && !strings.HasSuffix(host, ".") {
		return host + "."
	}
	return host
}

// dialAllowed connects to the first address that answers of those that the
// guard allows. Control judges each again at the socket: this check is there
// to report well, that one to protect.
func (d *dialer) dialAllowed(ctx context.Context, addrs []netip.Addr, port string) (net.Conn, error) {
	var allowed []string
	var refusal error
	for _, addr := range addrs {
		if err := d.guard.CheckAddr(addr); err != nil {
			if refusal == nil {
				refusal = err
			}
			continue
		}
		if len(allowed) < maxAddrs {
			allowed = append(allowed, net.JoinHostPort(addr.String(), port))
		}
	}
	if len(allowed) == 0 {
		return nil, refusal
	}
	conn, err := d.race(ctx, allowed)
	if err != nil && refusal != nil {
		err = fmt.Errorf("%w (and the guard refused %d of the name's %d addresses)", err, len(addrs)-len(allowed), len(addrs))
	}
	return conn, err
}

type dialed struct {
	conn net.Conn
	err  error
}

// race tries the addresses in order, the next one when the last has failed or
// had its head start, and keeps the first connection.
func (d *dialer) race(ctx context.Context, addrs []string) (net.Conn, error) {
	if len(addrs) == 1 {
		return d.dialOne(ctx, addrs[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed, len(addrs))
	started, finished := 0, 0
	start := func() {
		addr := addrs[started]
		started++
		go func() {
			conn, err := d.dialOne(ctx, addr)
			results <- dialed{conn, err}
		}()
	}
	start()
	next := time.NewTimer(headStart)
	defer next.Stop()
	var worst error
	for finished < len(addrs) {
		select {
		case <-next.C:
			if started < len(addrs) {
				start()
				next.Reset(headStart)
			}
		case r := <-results:
			finished++
			if r.err == nil {
				cancel()
				closeLosers(results, started-finished)
				return r.conn, nil
			}
			// An address family that this machine lacks says less than how
			// the other one failed.
			if worst == nil || isUnreachable(worst) {
				worst = r.err
			}
			if started < len(addrs) {
				start()
				next.Reset(headStart)
			}
		}
	}
	return nil, worst
}

// closeLosers waits for dials that were cancelled; one may have connected just
// before.
func closeLosers(results <-chan dialed, n int) {
	for range n {
		if r := <-results; r.conn != nil {
			r.conn.Close()
		}
	}
}

func (d *dialer) dialOne(ctx context.Context, address string) (net.Conn, error) {
	conn, err := d.tcp.DialContext(ctx, "tcp", address)
	if err != nil && errors.Is(context.Cause(ctx), errConnectTimeout) {
		return nil, fmt.Errorf("%w: %w", errConnectTimeout, err)
	}
	return conn, err
}

func isUnreachable(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL)
}
