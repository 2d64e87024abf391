package sender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/postlane-go/postlane/delivery/guard"
)

// classify names the failure of a try that brought no answer and had come as
// far as p. ctx is the attempt's.
func classify(ctx context.Context, err error, p phase) Outcome {
	if _, ok := errors.AsType[*invalidRequest](err); ok {
		return InvalidRequest
	}
	if ctx.Err() != nil {
		if !errors.Is(context.Cause(ctx), errAttemptTimeout) {
			return Canceled
		}
		return timeoutIn(p)
	}
	if o := classifyLocal(err); o != "" {
		return o
	}
	if o := classifyTLS(err); o != "" {
		return o
	}
	if o := classifyConnection(err); o != "" {
		return o
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return timeoutIn(p)
	}
	// What is left is told apart by how far the try had come: net/http and
	// crypto/tls have no types for the rest.
	switch p {
	case handshaking:
		return TLSHandshake
	case sending:
		return ConnectionClosed // not a byte to find fault with
	case answering:
		return ProtocolError
	}
	return Unreachable
}

func timeoutIn(p phase) Outcome {
	switch p {
	case resolving:
		return DNSFailure
	case waiting, connecting, connected:
		return ConnectTimeout
	case handshaking:
		return TLSTimeout
	}
	return Timeout
}

// classifyLocal names what went wrong before a packet reached the endpoint.
func classifyLocal(err error) Outcome {
	if errors.Is(err, guard.ErrRefused) {
		return Blocked
	}
	for _, shortage := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, shortage) {
			return LocalFailure
		}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound && !dns.IsTemporary && !dns.IsTimeout {
			return DNSNotFound
		}
		return DNSFailure
	}
	return ""
}

func classifyTLS(err error) Outcome {
	var (
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		untrusted *tls.CertificateVerificationError
		notTLS    tls.RecordHeaderError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &hostname):
		return TLSWrongHost
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return TLSExpired
	case errors.As(err, &untrusted):
		return TLSUntrusted
	case errors.As(err, &notTLS), errors.Is(err, http.ErrSchemeMismatch):
		return TLSHandshake
	// A peer's alert, which crypto/tls reports under this Op. It can come
	// late: TLS 1.3 refuses a missing client certificate when the handshake is
	// done on this side.
	case errors.As(err, &op) && op.Op == "remote error":
		return TLSHandshake
	}
	return ""
}

func classifyConnection(err error) Outcome {
	switch {
	case errors.Is(err, errConnectTimeout):
		return ConnectTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return ConnectionRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return ConnectionReset
	case isUnreachable(err):
		return Unreachable
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ConnectionClosed
	}
	return ""
}
