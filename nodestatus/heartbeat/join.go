// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// SetPodCIDRs returns a function for ReporterOptions.PodCIDRs. It passes the pod CIDRs of the Node to a container runtime
// that configures the pod network itself.
func SetPodCIDRs(runtime cri.PodCIDRSetter) func(ctx context.Context, cidrs []string) error {
	return func(ctx context.Context, cidrs []string) error {
		var prefixes []netip.Prefix
		for _, cidr := range cidrs {
			prefix, err := netip.ParsePrefix(cidr)
			if err != nil {
				return fmt.Errorf("podCIDRs of the Node: %w", err)
			}
			prefixes = append(prefixes, prefix)
		}
		return runtime.SetPodCIDRs(ctx, prefixes)
	}
}

// JoinHooks combines several sets of hooks. Each hook of the result calls the corresponding hook of each argument, in order.
// Nil hooks are skipped.
func JoinHooks(hooks ...ReporterHooks) ReporterHooks {
	each := func(f func(ReporterHooks)) {
		for _, h := range hooks {
			f(h)
		}
	}
	return ReporterHooks{
		Registered: func(node *corev1.Node) { each(func(h ReporterHooks) { callHook(h.Registered, node) }) },
		Reported:   func(node *corev1.Node) { each(func(h ReporterHooks) { callHook(h.Reported, node) }) },
		VolumesInUse: func(reported []corev1.UniqueVolumeName) {
			each(func(h ReporterHooks) { callHook(h.VolumesInUse, reported) })
		},
		Deleted: func() {
			each(func(h ReporterHooks) {
				if h.Deleted != nil {
					h.Deleted()
				}
			})
		},
		Error: func(err error) { each(func(h ReporterHooks) { callHook(h.Error, err) }) },
	}
}
