package metrics

import (
	"net/http"
	"strconv"
	"time"
)

// unmatched is the route of what no handler is for.
const unmatched = "none"

// Requests counts what next answers, by the pattern that a ServeMux found for it: handlers
// that hand a copy of the request to a ServeMux of their own carry its Pattern back.
func (m *Metrics) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		recorder := &statusRecorder{ResponseWriter: w}
		defer func() {
			route := r.Pattern
			if route == "" {
				route = unmatched
			}
			if recorder.status == 0 {
				recorder.status = http.StatusOK
			}
			m.requests.WithLabelValues(route, strconv.Itoa(recorder.status)).Inc()
			m.request.WithLabelValues(route).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(recorder, r)
	})
}

// statusRecorder remembers the status of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (w *statusRecorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK { // and no informational one
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
