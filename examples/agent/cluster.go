// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/apisource"
	"github.com/seed81659283/nodeagent/lifecycle/podset"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

// cluster is what an agent has of an API server: pods to run, objects that they refer to, and where it tells what becomes of them.
type cluster struct {
	agent    *agent
	source   *apisource.Source
	objects  *apisource.Objects
	recorder *apisource.Recorder
	statuses *apisource.Statuses
	mirrors  *apisource.Mirrors
	reporter *heartbeat.Reporter // node.go
	lease    *heartbeat.Lease

	mu     sync.Mutex    // guards what follows
	wanted []*corev1.Pod // by the API server
}

// connect makes what pods need of the API server. It sends nothing.
func (a *agent) connect() (err error) {
	if !a.joins() {
		return nil
	}
	config, err := a.identify()
	if err != nil {
		return err
	}
	c := &cluster{agent: a}
	wait := func(ctx context.Context) error { return c.reporter.Registered(ctx) }
	if c.source, err = apisource.New(config, apisource.Options{NodeName: a.NodeName, WaitForNode: wait, Logger: a.log}); err != nil {
		return err
	}
	if c.objects, err = a.referredTo(c.source); err != nil {
		return err
	}
	c.recorder = c.source.Recorder(apisource.RecorderOptions{
		Pod: c.pod, NodeUID: func() types.UID { return c.reporter.Node().UID }, Logger: a.log,
	})
	a.parts = append(a.parts, c.objects.Run, c.recorder.Run)
	a.cluster = c
	if err := c.report(config); err != nil {
		return err
	}
	return a.certify(config, func() []corev1.NodeAddress { return c.reporter.Node().Status.Addresses })
}

// referredTo returns the objects that pods refer to. What an agent has kept that was told to is removed by one that is not.
func (a *agent) referredTo(source *apisource.Source) (*apisource.Objects, error) {
	o, kept := apisource.ObjectsOptions{Services: a.state("services"), Logger: a.log}, a.state("objects")
	if a.KeepObjects {
		o.Keep = kept
	} else if err := os.RemoveAll(kept); err != nil {
		return nil, err
	}
	return source.Objects(o)
}

// pod returns a pod that the agent works on, or nil.
func (c *cluster) pod(uid string) *corev1.Pod {
	state, _ := c.agent.Pod(uid)
	return state.Spec
}

// tell has the API server told of what is done to pods.
func (c *cluster) tell(h *lifecycle.Hooks) {
	status := h.Status
	h.Status = func(pod *corev1.Pod, st *corev1.PodStatus) {
		status(pod, st)
		c.statuses.Changed(pod, st)
	}
	h.Left = func(pod cri.PodIdentity) { c.statuses.Left(pod) }
	h.Gone = func(pod cri.PodIdentity) {
		c.statuses.Gone(pod)
		c.retain(pod.UID)
		c.mirrors.Changed()
	}
	h.Refused = func(err *lifecycle.RefusedError) { c.recorder.Refused(err) }
}

// join makes what hands statuses to the API server, for the pods of the reconciler.
func (c *cluster) join() (err error) {
	a := c.agent
	c.statuses, err = c.source.Statuses(apisource.StatusesOptions{Pods: a.Pods, MayRun: a.MayRun, Logger: a.log, Hooks: apisource.StatusHooks{Sent: a.meter.StatusSent()}})
	if err != nil {
		return err
	}
	c.mirrors, err = c.source.Mirrors(apisource.MirrorsOptions{
		Sources: a.static(), Running: c.podsNamed, Node: func() *corev1.Node {
			if node := c.reporter.Node(); node.UID != "" {
				return node
			}
			return nil
		},
	})
	a.parts = append(a.parts, c.statuses.Run, c.mirrors.Run, c.reporter.Run, c.lease.Run)
	return err
}

// podsNamed returns the UIDs of the pods of a name that the agent runs or terminates, whether a source lists them or not.
func (c *cluster) podsNamed(namespace, name string) (uids []types.UID) {
	for _, p := range c.agent.Pods() {
		if p.Pod.Namespace == namespace && p.Pod.Name == name {
			uids = append(uids, types.UID(p.Pod.UID))
		}
	}
	return uids
}

// watch follows the pods of the API server.
func (c *cluster) watch(ctx context.Context, set func(podset.Set)) error {
	return c.source.Pods().Run(ctx, func(u apisource.Update) {
		for _, err := range u.Errs {
			c.agent.log.Error("pod of the API server", "error", err)
		}
		set(u.Set)
	})
}

// set takes note of what a source wants.
func (c *cluster) set(s podset.Set) {
	if s.Source != apisource.API {
		c.mirrors.Set(s)
	}
	if s.Source == apisource.API {
		c.mu.Lock()
		c.wanted = s.Pods
		c.mu.Unlock()
	}
	c.retain("")
}

// retain has objects dropped that nothing refers to any more, of pods that are wanted or there, but for one that is gone.
func (c *cluster) retain(gone string) {
	if !c.source.Pods().Synced() {
		return
	}
	c.mu.Lock()
	pods := slices.Clone(c.wanted)
	c.mu.Unlock()
	for _, p := range c.agent.Pods() {
		if p.Spec != nil {
			pods = append(pods, p.Spec)
		}
	}
	c.objects.Retain(slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return string(pod.UID) == gone }))
}
