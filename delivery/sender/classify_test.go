package sender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/matryer/is"
)

func TestClassifyByErrnoAndPhase(t *testing.T) {
	t.Parallel()
	dial := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
	}
	for _, c := range []struct {
		name  string
		err   error
		phase phase
		want  Outcome
	}{
		{"F76_TooManyOpenFiles", dial(syscall.EMFILE), connecting, LocalFailure},
		{"F76_FileTableFull", dial(syscall.ENFILE), connecting, LocalFailure},
		{"F76_NoBuffers", dial(syscall.ENOBUFS), connecting, LocalFailure},
		{"NoPortLeft", dial(syscall.EADDRNOTAVAIL), connecting, LocalFailure},
		{"F08_NoRoute", dial(syscall.EHOSTUNREACH), connecting, Unreachable},
		{"F08_NetworkUnreachable", dial(syscall.ENETUNREACH), connecting, Unreachable},
		{"F08_Refused", dial(syscall.ECONNREFUSED), connecting, ConnectionRefused},
		{"F09_KernelTimeout", dial(syscall.ETIMEDOUT), connecting, ConnectTimeout},
		{"F20_BrokenPipe", fmt.Errorf("write: %w", syscall.EPIPE), sending, ConnectionReset},
		{"F15_UnexpectedEOF", io.ErrUnexpectedEOF, answering, ConnectionClosed},
		{"NameMissing", &net.DNSError{IsNotFound: true}, resolving, DNSNotFound},
		{"NameMissingForNow", &net.DNSError{IsNotFound: true, IsTemporary: true}, resolving, DNSFailure},
		{"UnknownInHandshake", errors.New("?"), handshaking, TLSHandshake},
		{"UnknownBeforeConnection", errors.New("?"), connecting, Unreachable},
		{"UnknownBeforeAnswer", errors.New("?"), sending, ConnectionClosed},
		{"UnknownInAnswer", errors.New("?"), answering, ProtocolError},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			is.New(t).Equal(classify(context.Background(), c.err, c.phase), c.want)
		})
	}
}

func TestClassifyTimeoutByPhase(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 0, errAttemptTimeout)
	defer cancel()
	<-ctx.Done()
	for p, want := range map[phase]Outcome{
		waiting: ConnectTimeout, resolving: DNSFailure, connecting: ConnectTimeout,
		handshaking: TLSTimeout, sending: Timeout, answering: Timeout,
	} {
		is.Equal(classify(ctx, context.Cause(ctx), p), want)
	}
}

func TestOurFault(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for o := range texts {
		ours := o == DNSFailure || o == LocalFailure || o == Canceled
		is.Equal(Result{Outcome: o}.OurFault(), ours)
		is.True(o.Text() != "" && o.Text() != string(o) || o == Delivered) // every outcome has its words
	}
}
