// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/podsapi"
)

// tellPrograms serves the pods to programs of this machine, by the kubelet's pods API, and tells it what becomes of them.
func (a *agent) tellPrograms(h *lifecycle.Hooks) {
	if !a.serves() {
		return
	}
	o := podsapi.Options{Logger: a.log}
	o.Hooks.Answered, o.Hooks.Dropped = a.meter.PodsAPI()
	s := podsapi.New(podsapi.SourceFunc(a.podsAndReady), o)
	status, left, gone := h.Status, h.Left, h.Gone
	h.Status = func(pod *corev1.Pod, st *corev1.PodStatus) {
		status(pod, st)
		s.Updated(pod, st)
	}
	h.Left = also(left, s.Terminated)
	h.Gone = also(gone, s.Removed)
	a.parts = append(a.parts, func(ctx context.Context) error {
		l, err := podsapi.Listen(a.state("pods-api/pods-api.sock"))
		if err != nil { // such as a path that is too long for a socket: the node has its pods all the same
			a.log.Error("the pods API is not served", "error", err)
			return nil
		}
		return s.Run(ctx, l)
	})
}

// also returns what calls both.
func also(first, second func(cri.PodIdentity)) func(cri.PodIdentity) {
	if first == nil {
		return second
	}
	return func(pod cri.PodIdentity) {
		first(pod)
		second(pod)
	}
}

func (a *agent) podsAndReady() (pods []podsapi.Pod, ready bool) {
	for _, state := range a.Pods() {
		if state.Spec != nil && !state.Deleted {
			pods = append(pods, podsapi.Pod{Pod: state.Spec, Status: state.Status})
		}
	}
	_, ready = a.Active()
	return pods, ready
}

// takeManifests serves the directory of manifests on a unix socket, for who hands pods to this node without a cluster.
func (a *agent) takeManifests() error {
	if a.ManifestSocket == "" {
		return nil
	}
	server, err := nodeapi.New(nodeapi.Options{Insecure: true, Logger: a.log}) // the file mode of the socket says who may
	if err != nil {
		return err
	}
	handler := source.NewHandler(a.Manifests, source.HandlerOptions{
		NodeName: a.NodeName, Objects: a.Objects != "", Tokens: a.Kubeconfig != "", Status: func(uid string) *corev1.PodStatus {
			state, _ := a.Pod(uid)
			return state.Status
		},
	})
	a.parts = append(a.parts, func(ctx context.Context) error {
		l, err := podsapi.Listen(a.ManifestSocket)
		if err != nil {
			return err
		}
		return server.Run(ctx, nodeapi.Endpoint{Listener: l, Handler: handler})
	})
	return nil
}
