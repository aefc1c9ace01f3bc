// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
)

type imageMetrics struct {
	group    *group
	took     *histogram
	requests *counter
	errors   *counter
}

func (m *Metrics) buildImages(group *group) {
	m.images = imageMetrics{
		group: group,
		took: group.addHistogram("kubelet_image_pull_duration_seconds", "How long a pull took, including the wait for its start.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}, "image_size_in_bytes"),
		requests: group.addCounter("kubelet_image_manager_ensure_image_requests_total", "Images that containers requested.",
			"pull_policy", "present_locally", "pull_required"),
		errors: group.addCounter("nodeagent_image_errors_total", "Images that could not be made present, by the reason in the status of the container.",
			"reason"),
	}
}

// Images returns hooks for package images that record its metrics. They also call the additional hooks.
func (m *Metrics) Images(additional ...images.Hooks) images.Hooks {
	i := &m.images
	i.group.enabled.Store(true)
	return images.Hooks{
		Present: func(r images.Request, image cri.Image) {
			i.countRequest(r, "true", "false")
			callHooks(additional, func(h images.Hooks) { callHook2(h.Present, r, image) })
		},
		Pulling: func(r images.Request) { callHooks(additional, func(h images.Hooks) { callHook(h.Pulling, r) }) },
		Slow: func(r images.Request, after time.Duration) {
			callHooks(additional, func(h images.Hooks) { callHook2(h.Slow, r, after) })
		},
		Pulled: func(r images.Request, p images.Pull) {
			i.countRequest(r, presentLabel(r.Policy), "true")
			m.pods.updateKnownPod(r.Pod.UID, func(pod *podRecord) { pod.pullTime += p.Total })
			if !p.Shared {
				i.took.observe(p.Total, sizeLabel(p.Image.Size))
			}
			callHooks(additional, func(h images.Hooks) { callHook2(h.Pulled, r, p) })
		},
		Failed: func(r images.Request, err *images.Error) {
			i.countFailure(r, err)
			callHooks(additional, func(h images.Hooks) { callHook2(h.Failed, r, err) })
		},
		Error: func(err error) { callHooks(additional, func(h images.Hooks) { callHook(h.Error, err) }) },
	}
}

func (i *imageMetrics) countRequest(request images.Request, present, required string) {
	policy := request.Policy
	if policy == "" {
		policy = images.DefaultPolicy(request.Image)
	}
	i.requests.inc(strings.ToLower(string(policy)), present, required)
}

// countFailure counts an image request that failed with err, by its reason and by whether the image had to be pulled.
func (i *imageMetrics) countFailure(request images.Request, err *images.Error) {
	i.errors.inc(err.Reason)
	switch {
	case request.Policy == images.PullNever:
		i.countRequest(request, "false", "unknown")
	case err.Reason == images.ReasonInvalidImageName, err.Reason == images.ReasonImageInspectError:
		i.countRequest(request, "unknown", "unknown")
	default:
		i.countRequest(request, presentLabel(request.Policy), "true")
	}
}

// presentLabel returns the value of the label for whether an image was present before a pull.
func presentLabel(policy images.Policy) string {
	if policy == images.PullAlways {
		return "unknown" // the agent does not check it
	}
	return "false"
}

// sizeLabel returns the label value for an image size in bytes, for example "100MB-500MB".
func sizeLabel(bytes uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	sizes := [...]struct {
		above uint64
		label string
	}{
		{100 * gb, "GT100GB"},
		{60 * gb, "60GB-100GB"},
		{40 * gb, "40GB-60GB"},
		{30 * gb, "30GB-40GB"},
		{20 * gb, "20GB-30GB"},
		{10 * gb, "10GB-20GB"},
		{5 * gb, "5GB-10GB"},
		{gb, "1GB-5GB"},
		{500 * mb, "500MB-1GB"},
		{100 * mb, "100MB-500MB"},
		{10 * mb, "10MB-100MB"},
		{0, "0-10MB"},
	}
	for _, size := range sizes {
		if bytes > size.above {
			return size.label
		}
	}
	return "N/A"
}

type imageGCMetrics struct {
	group   *group
	removed *counter
}

func (m *Metrics) buildImageGC(group *group) {
	m.imageGC = imageGCMetrics{
		group:   group,
		removed: group.addCounter("kubelet_image_garbage_collected_total", "Images that were removed, by reason.", "reason"),
	}
}

// ImageGC returns hooks for image garbage collection in package gc that record its metrics. They also call the additional hooks.
func (m *Metrics) ImageGC(additional ...gc.ImageHooks) gc.ImageHooks {
	m.imageGC.group.enabled.Store(true)
	return gc.ImageHooks{
		Removed: func(image gc.Image, reason gc.RemovalReason) {
			m.imageGC.removed.inc(string(reason))
			callHooks(additional, func(h gc.ImageHooks) { callHook2(h.Removed, image, reason) })
		},
		Event: func(reason, message string) {
			callHooks(additional, func(h gc.ImageHooks) { callHook2(h.Event, reason, message) })
		},
		Error: func(err error) { callHooks(additional, func(h gc.ImageHooks) { callHook(h.Error, err) }) },
	}
}
