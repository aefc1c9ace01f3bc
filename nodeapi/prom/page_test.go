// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/promtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodeapi/prom"
	"github.com/seed81659283/nodeagent/probe"
)

type family = dto.MetricFamily

// startParts runs parts of an agent until the test ends.
func startParts(t *testing.T, parts ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() { assert.NoError(t, part(ctx)) })
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func getPage(h http.Handler, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// faultyCollector is a collector that sends the given metrics without describing them.
type faultyCollector []prometheus.Metric

func (faultyCollector) Describe(chan<- *prometheus.Desc) {}

func (f faultyCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, m := range f {
		metrics <- m
	}
}

func sample(name, label string) prometheus.Metric {
	return prometheus.MustNewConstMetric(prometheus.NewDesc(name, "Help.", []string{"l"}, nil), prometheus.GaugeValue, 1, label)
}

// A collector that fails, and a collector that repeats a series, lose only these series.
func TestPageSurvivesCollectors(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{})
	require.NoError(t, err)
	m.Cgroups(2)
	registry.MustRegister(faultyCollector{
		sample("nodeagent_twice", "a"), sample("nodeagent_twice", "a"), sample("nodeagent_twice", "b"),
		prometheus.NewInvalidMetric(prometheus.NewDesc("nodeagent_broken", "Help.", nil, nil), errors.New("out of order")),
		sample("kubelet_cgroup_version", "of another collector"),
	})
	var told error
	w := getPage(prom.Page(registry, prom.PageOptions{Error: func(err error) { told = err }}))
	assert.Equal(t, http.StatusOK, w.Code)
	require.ErrorContains(t, told, "out of order")
	require.ErrorContains(t, told, "nodeagent_twice")
	families, err := promtest.Parse(w.Body)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, f := range families {
		names[f.Name] = true
	}
	assert.True(t, names["nodeagent_twice"] && names["kubelet_cgroup_manager_duration_seconds"] || names["kubelet_cgroup_version"], names)
	assert.False(t, names["nodeagent_broken"])
}

// Any pod name yields a page that can be parsed, with unchanged labels.
func TestPageParsesWithAnyNames(t *testing.T) {
	p := newPages(t, prom.Options{Pods: func() []lifecycle.PodState { return nil }})
	require.NoError(t, prom.RegisterProcess(p.main, "1.2\n\"3\""))
	p.feedAll()
	pod := newPod("evil")
	pod.Name, pod.Namespace = "a\"b\\c\nd\xff", "ü"
	p.metrics.Lifecycle().StatusChanged(pod, &corev1.PodStatus{})
	p.metrics.Probes().ProbeFinished(probe.Key{PodUID: "evil", Container: "{}"}, probe.Result{}, nil, 0)
	for _, from := range []prometheus.Gatherer{p.main, p.probes} {
		page := prom.Page(from, prom.PageOptions{Error: func(err error) { t.Error(err) }})
		plain := getPage(page)
		assert.Equal(t, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", plain.Header().Get("Content-Type"))
		text := plain.Body.String()
		_, err := promtest.Parse(strings.NewReader(text))
		require.NoError(t, err)

		packed := getPage(page, "Accept-Encoding", "br, gzip")
		require.Equal(t, "gzip", packed.Header().Get("Content-Encoding"))
		unpacked, err := gzip.NewReader(packed.Body)
		require.NoError(t, err)
		all, err := io.ReadAll(unpacked)
		require.NoError(t, err)
		assert.Len(t, strings.Split(string(all), "\n"), len(strings.Split(text, "\n")))
		assert.Empty(t, getPage(page, "Accept-Encoding", "gzip;q=0").Header().Get("Content-Encoding"))
		proto := getPage(page, "Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
		assert.Contains(t, proto.Header().Get("Content-Type"), "application/vnd.google.protobuf")
	}
	assert.Contains(t, getPage(prom.Page(p.probes, prom.PageOptions{})).Body.String(), `pod="a\"b\\c\nd�"`)
}

func TestPageRejectsRequests(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := httptest.NewRecorder()
	prom.Page(registry, prom.PageOptions{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)

	registry.MustRegister(faultyCollector{prometheus.NewInvalidMetric(prometheus.NewDesc("a", "Help.", nil, nil), errors.New("no"))})
	assert.Equal(t, http.StatusInternalServerError, getPage(prom.Page(registry, prom.PageOptions{})).Code)
}

// hangingGatherer is a Gatherer that returns when its channel is closed.
type hangingGatherer chan struct{}

func (h hangingGatherer) Gather() ([]*dto.MetricFamily, error) {
	<-h
	return nil, nil
}

// While a collector hangs, requests wait until their timeout, and a bounded number of them. The page is served again after
// the collector has returned.
func TestPageOfACollectorThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := make(hangingGatherer)
		page := prom.Page(source, prom.PageOptions{InFlight: 2})
		for range 2 {
			began := time.Now()
			w := getPage(page)
			assert.Equal(t, http.StatusServiceUnavailable, w.Code)
			assert.Contains(t, w.Body.String(), "does not return")
			assert.Equal(t, 30*time.Second, time.Since(began))
		}
		began := time.Now()
		assert.Contains(t, getPage(page).Body.String(), "too many requests")
		assert.Zero(t, time.Since(began))
		close(source)
		synctest.Wait()
		assert.Equal(t, http.StatusOK, getPage(page).Code)
	})
}

func BenchmarkPage(b *testing.B) {
	var states []lifecycle.PodState
	for i := range 100 {
		pod := newPod(fmt.Sprint("pod-", i))
		states = append(states, lifecycle.PodState{Pod: cri.PodIdentity{UID: string(pod.UID)}, Spec: pod, Status: &corev1.PodStatus{Phase: corev1.PodRunning}})
	}
	registry := prometheus.NewRegistry()
	m, err := prom.New(registry, prom.Options{Pods: func() []lifecycle.PodState { return states }})
	require.NoError(b, err)
	require.NoError(b, prom.RegisterProcess(registry, "1"))
	p := &testPages{main: registry, metrics: m}
	p.feedAll()
	probes := m.Probes()
	for _, s := range states {
		for _, kind := range []probe.Kind{probe.Liveness, probe.Readiness} {
			probes.ProbeFinished(probe.Key{PodUID: s.Pod.UID, Container: "main", Kind: kind}, probe.Result{Outcome: probe.Success}, nil, time.Millisecond)
		}
	}
	page := prom.Page(registry, prom.PageOptions{})
	b.ReportAllocs()
	for b.Loop() {
		if w := getPage(page); w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
