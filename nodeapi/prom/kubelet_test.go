// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/pleg"
)

func TestKubeletHasThePagesOfAKubelet(t *testing.T) {
	registry := prometheus.NewRegistry()
	k, err := prom.NewKubelet(prom.KubeletOptions{Served: true, Registerer: registry, Version: "v1"})
	require.NoError(t, err)
	k.Metrics.PLEG().RunningCounted(pleg.RunningCount{Pods: 3})
	k.Metrics.Probes()
	all, probes, slis := k.Pages(prom.PageOptions{})
	body := func(page http.Handler) string {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Body.String()
	}
	require.Contains(t, body(all), "kubelet_running_pods 3")
	require.Contains(t, body(all), `nodeagent_build_info{version="v1"} 1`)
	require.Contains(t, body(probes), "process_start_time_seconds")
	require.Contains(t, body(slis), "process_start_time_seconds")

	families, err := registry.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
	for _, family := range families {
		require.NotEqual(t, "nodeagent_build_info", family.GetName(), "metrics of the process are left to the program")
	}
	_, err = prom.NewKubelet(prom.KubeletOptions{Registerer: registry})
	require.ErrorContains(t, err, "duplicate metrics collector registration attempted")
	k.Close()
	families, err = registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
}

// Without a page and a Registerer, no metric is created, and the hooks only call those of the program.
func TestKubeletKeepsNoMetricWithoutAReader(t *testing.T) {
	k, err := prom.NewKubelet(prom.KubeletOptions{Options: prom.Options{Pods: func() []lifecycle.PodState {
		t.Error("Pods must not be called")
		return nil
	}}})
	require.NoError(t, err)
	var counted int
	k.Metrics.PLEG(pleg.Hooks{RunningCounted: func(c pleg.RunningCount) { counted = c.Pods }}).RunningCounted(pleg.RunningCount{Pods: 3})
	require.Equal(t, 3, counted)
	k.Close()
}
