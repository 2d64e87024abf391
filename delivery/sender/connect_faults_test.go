package sender_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/dnstest"
)

func TestF01_ProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dns := dnstest.Start(t)
	// A name: net/http leaves loopback addresses out of the proxy by itself.
	dns.Set("receiver.test", dnstest.Addrs("127.0.0.1"))
	srv := listen(t, nil, answering(ok200))
	s := newSender(t, sender.Config{Resolver: dns.Resolver()})
	want(t, send(t, s, newRequest("http://receiver.test:"+srv.port()+"/")), sender.Delivered, 200)
	is.Equal(proxyConnections.Load(), int64(0))

	// The check is worth something: the variables are in force.
	req, err := http.NewRequest("POST", "http://receiver.test/", nil)
	is.NoErr(err)
	proxy, err := http.ProxyFromEnvironment(req)
	is.NoErr(err)
	is.True(proxy != nil)
}

func TestFaultsOfNames(t *testing.T) {
	t.Parallel()
	broken := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no way to the resolver")
	}}
	for _, r := range []struct {
		name     string
		answer   *dnstest.Answer // nil: unknown to the server
		resolver *net.Resolver   // nil: the server
		outcome  sender.Outcome
		ours     bool
	}{
		{"F02_NameDoesNotExist", nil, nil, sender.DNSNotFound, false},
		{"F02_NameHasNoAddress", &dnstest.Answer{}, nil, sender.DNSNotFound, false},
		{"F03_ServerFailure", &dnstest.Answer{Code: dnsmessage.RCodeServerFailure}, nil, sender.DNSFailure, true},
		{"F03_Refused", &dnstest.Answer{Code: dnsmessage.RCodeRefused}, nil, sender.DNSFailure, true},
		{"F03_ResolverSilent", &dnstest.Answer{Silent: true}, nil, sender.DNSFailure, true},
		{"F03_ResolverUnreachable", nil, broken, sender.DNSFailure, true},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			dns := dnstest.Start(t)
			if r.answer != nil {
				dns.Set("receiver.test", *r.answer)
			}
			resolver := r.resolver
			if resolver == nil {
				resolver = dns.Resolver()
			}
			s := newSender(t, sender.Config{Resolver: resolver, ConnectTimeout: 300 * time.Millisecond})
			got := send(t, s, newRequest("https://receiver.test/"))
			want(t, got, r.outcome, 0)
			is.Equal(got.OurFault(), r.ours)
			is.True(!strings.Contains(got.Text(), "receiver"))
		})
	}
}

func TestF04_PrivateAnswerIsBlockedWithoutTellingTheAddress(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dns := dnstest.Start(t)
	dns.Set("inner.test", dnstest.Addrs("10.1.2.3", "192.168.1.5", "fd00::5"))
	s := newSender(t, sender.Config{Guard: newGuard(t, guard.Policy{}), Resolver: dns.Resolver()})
	got := send(t, s, newRequest("https://inner.test/hook?token=hush"))
	want(t, got, sender.Blocked, 0)
	for _, text := range []string{got.Text(), got.Err.Error()} {
		for _, secret := range []string{"10.1.2.3", "192.168", "fd00", "hush"} {
			is.True(!strings.Contains(text, secret))
		}
	}
	var refusal *guard.Refusal
	is.True(errors.As(got.Err, &refusal))
	is.Equal(refusal.Rule, guard.RulePrivate) // the operator can see why
	is.Equal(refusal.Addr, netip.MustParseAddr("10.1.2.3"))
}

func TestF05_MixedAnswerUsesTheAllowedAddressAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ca := newAuthority(t)
	srv := listen(t, ca.config(t, "mixed.test"), answering(ok200))
	dns := dnstest.Start(t)
	dns.Set("mixed.test", dnstest.Addrs("10.0.0.5", "169.254.169.254", "127.0.0.1", "fd00::5"))
	s := newSender(t, sender.Config{
		Guard:    newGuard(t, guard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}),
		Resolver: dns.Resolver(),
		RootCAs:  ca.pool,
	})
	want(t, send(t, s, newRequest("https://mixed.test:"+srv.port()+"/")), sender.Delivered, 200)

	// When the allowed one fails, that is the outcome, and not "blocked".
	closed := closedPort(t)
	got := send(t, s, newRequest("https://mixed.test:"+closed+"/"))
	want(t, got, sender.ConnectionRefused, 0)
	is.True(strings.Contains(got.Err.Error(), "guard refused 3 of")) // both are reported
}

func TestF07_SearchDomainsAreNotTried(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dns := dnstest.Start(t)
	s := newSender(t, sender.Config{Resolver: dns.Resolver()})
	want(t, send(t, s, newRequest("https://a.b.receiver.test/")), sender.DNSNotFound, 0)
	is.Equal(dns.Names(), []string{"a.b.receiver.test."})
}

func TestF08_ConnectionRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	got := send(t, newSender(t, sender.Config{}), newRequest("http://127.0.0.1:"+closedPort(t)+"/"))
	want(t, got, sender.ConnectionRefused, 0)
	is.True(!got.Answered)
	is.True(!strings.Contains(got.Text(), "127.0.0.1")) // F79
}

func TestF09_BlackHole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	address := blackHole(t)
	s := newSender(t, sender.Config{Timeout: 5 * time.Second, ConnectTimeout: 300 * time.Millisecond})
	got := send(t, s, newRequest("http://"+address+"/"))
	want(t, got, sender.ConnectTimeout, 0)
	is.True(got.Duration < 3*time.Second)
}

// TestSecondAddressIsTriedBeside holds that one dead address of a name does
// not use up the time of the others.
func TestSecondAddressIsTriedBeside(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	address := blackHole(t)
	_, port, err := net.SplitHostPort(address)
	is.NoErr(err)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", port))
	if err != nil {
		t.Skipf("no second loopback address with that port: %v", err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) })}
	done := make(chan struct{})
	go func() { srv.Serve(l); close(done) }()
	t.Cleanup(func() { srv.Close(); <-done })
	dns := dnstest.Start(t)
	dns.Set("receiver.test", dnstest.Addrs("127.0.0.1", "127.0.0.2"))
	s := newSender(t, sender.Config{Resolver: dns.Resolver()})
	got := send(t, s, newRequest("http://receiver.test:"+port+"/"))
	want(t, got, sender.Delivered, 204)
	is.True(got.Timing.DNS > 0)
	is.True(got.Timing.Connect > 0)
	is.True(got.Timing.FirstByte > 0)
}

func TestF06_BC36_TheAddressDialledIsTheOneJudged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	canary := listen(t, nil, func(*peer) {})
	dns := dnstest.Start(t)
	// 127.0.0.2, where nobody listens, stands for a public address that never
	// connects: the policy allows it alone.
	dns.Set("flip.test", dnstest.Addrs("127.0.0.2"), dnstest.Addrs("127.0.0.1"))
	dns.Set("both.test", dnstest.Addrs("127.0.0.2", "127.0.0.1"))
	s := newSender(t, sender.Config{
		Guard:    newGuard(t, guard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}),
		Resolver: dns.Resolver(),
	})
	for i := range 10 {
		got := send(t, s, newRequest("https://flip.test:"+canary.port()+"/"))
		if i > 0 {
			want(t, got, sender.Blocked, 0)
		}
		got = send(t, s, newRequest("https://both.test:"+canary.port()+"/"))
		want(t, got, sender.ConnectionRefused, 0) // the allowed address was tried
	}
	is.Equal(canary.accepted.Load(), int64(0))
	is.Equal(dns.Lookups("flip.test"), 10) // a new lookup for each dial
}

func TestPlantedURLsAreBlockedBeforeALookup(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	canary := listen(t, nil, func(*peer) {})
	dns := dnstest.Start(t)
	s := newSender(t, sender.Config{Guard: newGuard(t, guard.Policy{}), Resolver: dns.Resolver()})
	for _, url := range []string{
		"http://receiver.test/", "ftp://receiver.test/", "https://user:pass@receiver.test/",
		"https://127.0.0.1:" + canary.port() + "/", "https://[::1]/", "https://receiver.test:22/",
		"", "::", "https://", "/relative",
	} {
		got := send(t, s, newRequest(url))
		want(t, got, sender.Blocked, 0)
		is.True(!got.OurFault())
	}
	is.Equal(len(dns.Names()), 0)
	is.Equal(canary.accepted.Load(), int64(0))
}

func TestCanceledByTheCaller(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	arrived := make(chan struct{})
	srv := listen(t, nil, func(p *peer) {
		p.read()
		close(arrived)
		p.r.ReadByte()
	})
	s := newSender(t, sender.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-arrived; cancel() }()
	got := s.Send(ctx, newRequest(srv.url()))
	want(t, got, sender.Canceled, 0)
	is.True(got.OurFault())

	// A deadline of the caller's is the caller's too.
	ctx, cancel = context.WithTimeout(context.Background(), 0)
	defer cancel()
	want(t, s.Send(ctx, newRequest(srv.url())), sender.Canceled, 0)
}

// closedPort returns a loopback port on which nobody listens.
func closedPort(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
