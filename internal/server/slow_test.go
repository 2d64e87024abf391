package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Clients that send slowly, or begin and say no more, keep nobody else from being served,
// and are hung up on.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := strings.TrimPrefix(r.url, "http://")
	begin := func(text string) net.Conn {
		conn, err := net.Dial("tcp", address)
		r.is.NoErr(err)
		_, err = io.WriteString(conn, text)
		r.is.NoErr(err)
		return conn
	}
	var headers, bodies []net.Conn
	for range 100 { // far more than the pool has connections
		headers = append(headers, begin("GET /v1/subscriptions HTTP/1.1\r\nHost: x\r\nX-Slow: "))
		bodies = append(bodies, begin(fmt.Sprintf("POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", operatorKey)))
		bodies = append(bodies, begin("POST /console/sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000\r\n\r\nkey="))
	}
	for range 10 {
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/v1/subscriptions": 200, "/console/sign-in": 200} {
			status, _ := r.do(http.MethodGet, path, "")
			r.is.Equal(status, want)
		}
	}
	for _, conn := range headers { // given up after some seconds
		_, err := io.Copy(io.Discard, conn)
		if err != nil && !strings.Contains(err.Error(), "reset") {
			t.Error(err)
		}
		conn.Close()
	}
	for _, conn := range bodies {
		conn.Close()
	}
	r.stop()
	r.is.NoErr(<-r.done)
}
