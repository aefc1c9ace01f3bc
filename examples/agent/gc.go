// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// gcConfig is what goes of itself, by the kubelet's names. What is not set is the kubelet's default.
type gcConfig struct {
	ImageGCHighThresholdPercent *int            `json:"imageGCHighThresholdPercent"` // 85
	ImageGCLowThresholdPercent  *int            `json:"imageGCLowThresholdPercent"`  // 80
	ImageMinimumGCAge           metav1.Duration `json:"imageMinimumGCAge"`           // zero: 2m
	ImageMaximumGCAge           metav1.Duration `json:"imageMaximumGCAge"`           // zero: no limit
	ForeignPods                 bool            `json:"foreignPods"`                 // also what pods of other agents, or of none, have left
}

// policy is that of images.
func (c *gcConfig) policy() gc.ImagePolicy {
	p := gc.DefaultImagePolicy()
	if c.ImageGCHighThresholdPercent != nil {
		p.HighThresholdPercent = *c.ImageGCHighThresholdPercent
	}
	if c.ImageGCLowThresholdPercent != nil {
		p.LowThresholdPercent = *c.ImageGCLowThresholdPercent
	}
	p.MinAge, p.MaxAge = cmp.Or(c.ImageMinimumGCAge.Duration, p.MinAge), c.ImageMaximumGCAge.Duration
	return p
}

// collectImages removes images every 5 minutes, where their disk is too full. It is called before there is a reconciler.
func (a *agent) collectImages(puller *images.Puller) error {
	policy := a.GC.policy()
	collector, err := gc.NewImages(a.client, a.client, gc.ImageOptions{
		Policy: &policy, Ages: a.state("image_ages.json"), Puller: puller, Wanted: a.wantedImages, Logger: a.log,
		Ready: func() bool { _, all := a.Active(); return all }, Hooks: a.meter.ImageGC(gc.ImageHooks{Event: a.nodeEvent}),
	})
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	a.unused = collector
	a.parts = append(a.parts, collector.Run)
	return nil
}

// wantedImages returns the images that pods name which run or are to run, also those that are held back, or that nobody works on yet.
func (a *agent) wantedImages() (names []string) {
	pods, _ := a.Active()
	for _, p := range a.Pods() {
		if p.Spec != nil && !p.Deleted && (p.Status == nil || !podstatus.Terminal(p.Status.Phase)) {
			pods = append(pods, p.Spec)
		}
	}
	for _, pod := range pods {
		for i := range pod.Spec.InitContainers {
			names = append(names, pod.Spec.InitContainers[i].Image)
		}
		for i := range pod.Spec.Containers {
			names = append(names, pod.Spec.Containers[i].Image)
		}
		for i := range pod.Spec.Volumes {
			if image := pod.Spec.Volumes[i].Image; image != nil {
				names = append(names, image.Reference)
			}
		}
	}
	return names
}

// collectLeftovers removes every minute what pods have left that no reconciler removes. There is a reconciler by then.
func (a *agent) collectLeftovers(o *lifecycle.Options) error {
	release := func(context.Context, string) error { return nil }
	if o.Volumes != nil {
		release = o.Volumes.Release
	}
	collector, err := gc.NewContainers(a.runtime, gc.ContainerOptions{
		Pod:     gc.OwnedBy(a.Owned),
		Mine:    func(map[string]string) bool { return a.GC.ForeignPods },
		LogRoot: a.LogDir, LogLinks: a.LogLinkDir, PodRoot: o.Dirs.Pods, Release: release, Logger: a.log,
		// Other agents have their logs there, too. The reconciler removes those of its own pods.
		KeepLogs: a.LogDir == podspec.DefaultLogRoot && !a.GC.ForeignPods,
		Hooks:    gc.ContainerHooks{Event: a.nodeEvent},
	})
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	a.parts = append(a.parts, collector.Run)
	return nil
}

// nodeEvent is an event of the node.
func (a *agent) nodeEvent(reason, message string) {
	a.log.Warn("node event", "reason", reason, "message", message)
}
