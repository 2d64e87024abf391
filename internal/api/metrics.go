package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

func (a *api) metricsRoutes() {
	op := operation(http.MethodGet, "/metrics", "get-metrics", tagServer, "Read this process's metrics",
		"Counters, gauges and histograms in Prometheus's text format. Needs an operator's key, one that may read is enough: the metrics name no tenant, but tell how all of them fare together.")
	op.Metadata[forOperators] = true
	op.Responses = map[string]*huma.Response{"200": {
		Description: "OK", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	register(a, op, a.getMetrics)
}

func (a *api) getMetrics(context.Context, *struct{}) (*huma.StreamResponse, error) {
	if a.Metrics == nil {
		return nil, missing()
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		a.Metrics.ServeHTTP(w, r)
	}}, nil
}
