// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/required"
)

// volumeMetric is a metric about volumes that have a PersistentVolumeClaim.
type volumeMetric struct {
	desc  *prometheus.Desc
	value func(*statsapi.VolumeStats) *uint64
}

// storage is the collector that [Storage] returns.
type storage struct {
	measure func() (*statsapi.Summary, error)
	opts    Options
	volumes []volumeMetric
	logs    *prometheus.Desc // nil: excluded
}

// Storage returns a collector of volume and log usage for the kubelet's page /metrics: the volumes of claims
// (kubelet_volume_stats_*) and container logs (kubelet_container_log_filesystem_used_bytes). Each collection calls measure, such
// as Summary of a stats.Collector. It panics if measure is nil.
func Storage(measure func() (*statsapi.Summary, error), opts Options) prometheus.Collector {
	required.MustArgs("usage.Storage", required.Arg{Name: "measure", Value: measure, Hint: "a func that calls stats.Collector.Summary"})
	s := &storage{measure: measure, opts: opts}
	volume := func(name, help string, value func(*statsapi.VolumeStats) *uint64) {
		if name = "kubelet_volume_stats_" + name; opts.isIncluded(name) {
			s.volumes = append(s.volumes, volumeMetric{prometheus.NewDesc(name, help, []string{"namespace", "persistentvolumeclaim"}, nil), value})
		}
	}
	volume("available_bytes", "Bytes that are free in the volume of a claim", func(v *statsapi.VolumeStats) *uint64 { return v.AvailableBytes })
	volume("capacity_bytes", "Bytes that the volume of a claim has", func(v *statsapi.VolumeStats) *uint64 { return v.CapacityBytes })
	volume("inodes", "Inodes that the volume of a claim has", func(v *statsapi.VolumeStats) *uint64 { return v.Inodes })
	volume("inodes_free", "Inodes that are free in the volume of a claim", func(v *statsapi.VolumeStats) *uint64 { return v.InodesFree })
	volume("inodes_used", "Inodes that are used in the volume of a claim", func(v *statsapi.VolumeStats) *uint64 { return v.InodesUsed })
	volume("used_bytes", "Bytes that are used in the volume of a claim", func(v *statsapi.VolumeStats) *uint64 { return v.UsedBytes })
	const logs = "kubelet_container_log_filesystem_used_bytes"
	if opts.isIncluded(logs) {
		s.logs = prometheus.NewDesc(logs, "Bytes that the logs of a container take", []string{"uid", "namespace", "pod", "container"}, nil)
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *storage) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range s.volumes {
		descs <- m.desc
	}
	if s.logs != nil {
		descs <- s.logs
	}
}

// Collect measures volumes and containers by calling s.measure, and sends the resulting series. If two volumes or containers
// have the same labels, it sends only the series of the first.
func (s *storage) Collect(metrics chan<- prometheus.Metric) {
	all, err := s.measure()
	s.opts.reportError("/metrics", err)
	if all == nil {
		return
	}
	seen := make(map[[4]string]bool)
	first := func(labels ...string) bool {
		var key [4]string
		copy(key[:], labels)
		before := seen[key]
		seen[key] = true
		return !before
	}
	for i := range all.Pods {
		p := &all.Pods[i]
		for j := range p.VolumeStats {
			if v := &p.VolumeStats[j]; v.PVCRef != nil && first(v.PVCRef.Namespace, v.PVCRef.Name) {
				s.sendVolume(metrics, v)
			}
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			used := c.Logs != nil && c.Logs.UsedBytes != nil
			if of := []string{p.PodRef.UID, p.PodRef.Namespace, p.PodRef.Name, c.Name}; s.logs != nil && used && first(of...) {
				metrics <- prometheus.MustNewConstMetric(s.logs, prometheus.GaugeValue, float64(*c.Logs.UsedBytes), of...)
			}
		}
	}
}

// sendVolume sends the usage of a claim's volume, with one series per measured value.
func (s *storage) sendVolume(metrics chan<- prometheus.Metric, usage *statsapi.VolumeStats) {
	for _, m := range s.volumes {
		if value := m.value(usage); value != nil {
			metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(*value), usage.PVCRef.Namespace, usage.PVCRef.Name)
		}
	}
}
