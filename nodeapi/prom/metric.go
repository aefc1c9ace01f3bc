// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// group is the metrics of one engine. It is registered as a whole, so that a name that is taken is an error of New, and is on
// the page from when its engine is wired: what nothing feeds would say 0 where nothing is known.
type group struct {
	metrics    *Metrics
	name       string
	enabled    atomic.Bool
	collectors []prometheus.Collector
}

// Describe is a part of prometheus.Collector.
func (g *group) Describe(descs chan<- *prometheus.Desc) {
	for _, member := range g.collectors {
		member.Describe(descs)
	}
}

// Collect is a part of prometheus.Collector.
func (g *group) Collect(metrics chan<- prometheus.Metric) {
	if !g.enabled.Load() {
		return
	}
	for _, member := range g.collectors {
		member.Collect(metrics)
	}
}

// labels are those of a family, and which of them are kept.
type labels struct {
	names []string
	kept  []int
}

// keptLabels returns the labels of a family, and false when the family is left out.
func (m *Metrics) keptLabels(family string, names []string) (labels, bool) {
	if matchesAny(m.opts.Without, family) {
		return labels{}, false
	}
	var l labels
	for i, name := range names {
		if !slices.Contains(m.opts.WithoutLabels[family], name) {
			l.names, l.kept = append(l.names, name), append(l.kept, i)
		}
	}
	return l, true
}

// pick returns the values of the labels that are kept, as text that a page can have.
func (l *labels) keptValues(values []string) []string {
	kept := make([]string, len(l.kept))
	for i, at := range l.kept {
		kept[i] = strings.ToValidUTF8(values[at], "�")
	}
	return kept
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, _ := path.Match(pattern, name) // New has checked it
		return matched
	})
}

// counter is a family of counters; nil is one that is left out.
type counter struct {
	labels
	vec *prometheus.CounterVec
}

// counter adds a family to the group. Without labels it begins at 0, as the kubelet's do.
func (g *group) addCounter(name, help string, names ...string) *counter {
	l, ok := g.metrics.keptLabels(name, names)
	if !ok {
		return nil
	}
	c := &counter{l, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, l.names)}
	if len(names) == 0 {
		c.vec.WithLabelValues()
	}
	g.collectors = append(g.collectors, c.vec)
	return c
}

func (c *counter) inc(values ...string) { c.add(1, values...) }

func (c *counter) add(n float64, values ...string) {
	if c != nil {
		c.vec.WithLabelValues(c.keptValues(values)...).Add(n)
	}
}

// remove removes a series. One that has fewer labels than the family was made with is shared, and stays.
func (c *counter) remove(values ...string) {
	if c != nil && len(c.kept) == len(values) {
		c.vec.DeleteLabelValues(c.keptValues(values)...)
	}
}

// gauge is a family of gauges; nil is one that is left out.
type gauge struct {
	labels
	vec *prometheus.GaugeVec
}

func (g *group) addGauge(name, help string, names ...string) *gauge {
	l, ok := g.metrics.keptLabels(name, names)
	if !ok {
		return nil
	}
	v := &gauge{l, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, l.names)}
	if len(names) == 0 {
		v.vec.WithLabelValues()
	}
	g.collectors = append(g.collectors, v.vec)
	return v
}

func (v *gauge) set(n float64, values ...string) {
	if v != nil {
		v.vec.WithLabelValues(v.keptValues(values)...).Set(n)
	}
}

func (v *gauge) add(n float64, values ...string) {
	if v != nil {
		v.vec.WithLabelValues(v.keptValues(values)...).Add(n)
	}
}

// setTime sets the gauge to a time in seconds since the epoch.
func (v *gauge) setTime(t time.Time, values ...string) {
	if t.IsZero() {
		v.set(0, values...)
		return
	}
	v.set(float64(t.UnixNano())/1e9, values...)
}

// histogram is a family of histograms; nil is one that is left out.
type histogram struct {
	labels
	vec *prometheus.HistogramVec
}

// histogram adds a family to the group. Without buckets it has that of +Inf alone.
func (g *group) addHistogram(name, help string, buckets []float64, names ...string) *histogram {
	h := g.addLateHistogram(name, help, buckets, names...)
	if h != nil && len(names) == 0 {
		h.vec.WithLabelValues()
	}
	return h
}

// lateHistogram is a histogram that is on the page once it has a value.
func (g *group) addLateHistogram(name, help string, buckets []float64, names ...string) *histogram {
	l, ok := g.metrics.keptLabels(name, names)
	if !ok {
		return nil
	}
	if len(buckets) == 0 {
		buckets = []float64{math.Inf(1)}
	}
	h := &histogram{l, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, l.names)}
	g.collectors = append(g.collectors, h.vec)
	return h
}

func (h *histogram) observe(d time.Duration, values ...string) {
	h.observeValue(d.Seconds(), values...)
}

func (h *histogram) observeValue(n float64, values ...string) {
	if h != nil {
		h.vec.WithLabelValues(h.keptValues(values)...).Observe(n)
	}
}

func (h *histogram) remove(values ...string) {
	if h != nil && len(h.kept) == len(values) {
		h.vec.DeleteLabelValues(h.keptValues(values)...)
	}
}

// level is a family of gauges that are computed when the page is asked for; nil is one that is left out.
type computedGauge struct {
	labels
	desc *prometheus.Desc
}

func (m *Metrics) newComputedGauge(name, help string, names ...string) *computedGauge {
	l, ok := m.keptLabels(name, names)
	if !ok {
		return nil
	}
	return &computedGauge{l, prometheus.NewDesc(name, help, l.names, nil)}
}

// tally is the values of some levels. What only labels that are left out tell apart is added up.
type gaugeValues map[*computedGauge]map[string]*gaugeValue

type gaugeValue struct {
	values []string
	n      float64
}

func (t gaugeValues) addValue(l *computedGauge, n float64, values ...string) {
	if l == nil {
		return
	}
	kept := l.keptValues(values)
	key := strings.Join(kept, "\xff")
	if t[l] == nil {
		t[l] = map[string]*gaugeValue{}
	}
	if t[l][key] == nil {
		t[l][key] = &gaugeValue{values: kept}
	}
	t[l][key].n += n
}

func (t gaugeValues) sendMetrics(metrics chan<- prometheus.Metric) {
	for l, sums := range t {
		for _, s := range sums {
			metrics <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, s.n, s.values...)
		}
	}
}
