package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// A server whose dispatcher stops is not ready, whatever its database says.
func TestAStoppingServerIsNotReady(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	stopping := make(chan struct{})
	close(stopping)
	w := httptest.NewRecorder()
	handler(readiness{members: []*member{{}}, stopping: stopping}, http.NotFoundHandler(), http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	is.Equal(w.Code, http.StatusServiceUnavailable)
	is.True(strings.Contains(w.Body.String(), "the server is stopping"))
}
