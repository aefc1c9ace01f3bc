// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
)

// The source of these examples reads file systems too, so that its pages have the metrics container_fs_*.
var _ usage.Filesystems = (*fakeSource)(nil)

func ExampleResource() {
	page, err := usage.Resource(newFakeNode(), usage.Options{Without: []string{"container_*", "*_swap_*"}})
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "/metrics/resource", nil))
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			fmt.Print(line)
		}
	}
	// Output:
	// node_cpu_usage_seconds_total 3.5 1700000000123
	// node_memory_working_set_bytes 650 1700000000123
	// pod_cpu_usage_seconds_total{namespace="ns",pod="web"} 3.5 1700000000123
	// pod_memory_working_set_bytes{namespace="ns",pod="web"} 650 1700000000123
	// resource_scrape_error 0
}

func ExampleCadvisor() {
	_, err := usage.Cadvisor(newFakeNode(), usage.Options{WithoutLabels: []string{"pod"}})
	fmt.Println(err)
	// Output: usage.Cadvisor: Options.WithoutLabels: "pod": must be image or name: series of several containers would be one
}

func ExampleStorage() {
	registry := prometheus.NewRegistry()
	registry.MustRegister(usage.Storage(newFakeNode().Summary, usage.Options{}))
	families, err := registry.Gather()
	fmt.Println(len(families), err)
	// Output: 3 <nil>
}
