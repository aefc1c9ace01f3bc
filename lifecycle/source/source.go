// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// Source lists the pods of one source of a node.
type Source interface {
	// Name returns the name of the source, which no other source of the node has.
	Name() string
	// Run calls set with all pods of the source, at first and after each change, until ctx ends. Set keeps the pods: they must not be changed
	// after the call. A [Feed] sets the Source of the set to Name. An error before ctx ends stops the node.
	Run(ctx context.Context, set func(lifecycle.PodSet)) error
}

// New returns a Source that calls run, such as a function that calls Run of a [Dir] or of a watch.
func New(name string, run func(ctx context.Context, set func(lifecycle.PodSet)) error) Source {
	return function{name, run}
}

type function struct {
	name string
	run  func(ctx context.Context, set func(lifecycle.PodSet)) error
}

func (f function) Name() string { return f.name }

func (f function) Run(ctx context.Context, set func(lifecycle.PodSet)) error { return f.run(ctx, set) }

// Manifests returns the Source of a [Dir] or an [HTTP], whose method Run is run. It logs the errors of manifests.
func Manifests(name string, run func(ctx context.Context, sink func(Update)) error, log *slog.Logger) Source {
	return New(name, func(ctx context.Context, set func(lifecycle.PodSet)) error {
		return run(ctx, func(u Update) {
			for _, err := range u.Errs {
				log.Error("manifest", "error", err)
			}
			set(u.PodSet)
		})
	})
}

// Pods returns a Source whose pods are built in code. Each value that the channel receives replaces all previous pods. A closed channel leaves
// the pods unchanged. Fields that are not set get the defaults of an API server, the namespace is default, and a pod without a UID gets one
// that depends on its content, so that a changed pod replaces the previous one. For static pods see [Static].
func Pods(name string, pods <-chan []*corev1.Pod) Source {
	return New(name, func(ctx context.Context, set func(lifecycle.PodSet)) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case built, open := <-pods:
				if !open {
					<-ctx.Done()
					return nil
				}
				complete := make([]*corev1.Pod, len(built))
				for i, pod := range built {
					complete[i] = completePod(pod)
				}
				set(lifecycle.PodSet{Source: name, Pods: complete})
			}
		}
	})
}

// completePod returns a copy of pod with its defaults and a UID.
func completePod(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = cmp.Or(pod.Namespace, metav1.NamespaceDefault)
	podapi.Default(pod)
	if pod.UID == "" {
		text, _ := json.Marshal(pod) // every pod has a JSON form
		sum := sha256.Sum256(text)
		pod.UID = types.UID(hex.EncodeToString(sum[:16]))
	}
	return pod
}
