// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/qos"
)

// NodePods gives access to the pods that a node runs. *lifecycle.Reconciler and *lifecycle.Handle implement it.
type NodePods interface {
	Pods() []lifecycle.PodState                            // see [lifecycle.Reconciler.Pods]
	Pod(uid string) (state lifecycle.PodState, found bool) // see [lifecycle.Reconciler.Pod]
	MayRun(uid string) bool                                // see [lifecycle.Reconciler.MayRun]
}

// PartsOptions configures [NewParts]. NodeName, Pods and Node are required.
type PartsOptions struct {
	// NodeName is the name of the Node object.
	NodeName string
	// Pods gives access to the pods that the node runs.
	Pods NodePods
	// Node returns the Node object in the API server. A Node without a UID is not registered yet.
	Node func() *corev1.Node
	// WaitForNode is the field of [Options] with this name. Nil: no wait.
	WaitForNode func(ctx context.Context) error
	// StaticSources names the sources of static pods, see [MirrorsOptions].Sources. Empty: one complete set of any source is enough.
	StaticSources []string
	// ServicesFile is the field of [ObjectsOptions] with this name. Empty: no services on disk.
	ServicesFile string
	// CacheDir is the directory for copies of the objects of pods. NewParts removes it unless CacheObjects is set. Empty: no
	// directory.
	CacheDir     string
	CacheObjects bool // store copies of objects in CacheDir
	// EventQPS and EventBurst are the fields of [Options] with these names. Zero: events share the limit of the other requests.
	EventQPS   float32
	EventBurst int
	// StatusSent is called when the API server has accepted a pod status. Nil: no hook.
	StatusSent func(pod cri.PodIdentity, took time.Duration)
	Logger     *slog.Logger // nil discards
	// Rand returns a number in [0,1) for the jitter of retries. Nil: math/rand/v2.
	Rand func() float64
}

// Parts holds the connected components of this package that a node of a cluster needs. Create them with [NewParts]. The caller
// runs Objects, Recorder, Statuses and Mirrors, and passes the pods to its Reconciler with [Parts.RunPods].
type Parts struct {
	Source   *Source
	Objects  *Objects
	Recorder *Recorder
	Statuses *Statuses
	Mirrors  *Mirrors

	retainer *Retainer
	log      *slog.Logger
}

// NewParts creates the components of a node that use the API server. It sends no request. An error names the missing option
// or the invalid field of config.
func NewParts(config *rest.Config, opts PartsOptions) (*Parts, error) {
	if opts.Pods == nil || opts.Node == nil {
		return nil, errors.New("apiserver.NewParts: PartsOptions.Pods and PartsOptions.Node: required")
	}
	p := &Parts{log: opts.Logger}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if p.Source, err = New(config, Options{NodeName: opts.NodeName, WaitForNode: opts.WaitForNode, EventQPS: opts.EventQPS, EventBurst: opts.EventBurst, Logger: p.log}); err != nil {
		return nil, err
	}
	kept := ObjectsOptions{ServicesFile: opts.ServicesFile, Logger: p.log}
	if opts.CacheObjects {
		kept.CacheDir = opts.CacheDir
	} else if err := os.RemoveAll(opts.CacheDir); err != nil { // copies of a previous agent
		return nil, err
	}
	if p.Objects, err = p.Source.Objects(kept); err != nil {
		return nil, err
	}
	p.retainer = p.Source.Retainer(p.Objects, opts.Pods.Pods)
	p.Recorder = p.Source.Recorder(RecorderOptions{
		Pod: func(uid string) *corev1.Pod {
			state, _ := opts.Pods.Pod(uid)
			return state.Spec
		},
		NodeUID: func() types.UID { return opts.Node().UID }, Logger: p.log, Rand: opts.Rand,
	})
	p.Statuses, err = p.Source.Statuses(StatusesOptions{
		Pods: opts.Pods.Pods, MayRun: opts.Pods.MayRun, Logger: p.log, Hooks: StatusHooks{StatusSent: opts.StatusSent}, Rand: opts.Rand,
	})
	if err != nil {
		return nil, err
	}
	p.Mirrors, err = p.Source.Mirrors(MirrorsOptions{
		Sources: opts.StaticSources, Rand: opts.Rand,
		RunningUIDs: func(namespace, name string) []types.UID { return podUIDs(opts.Pods.Pods(), namespace, name) },
		Admitted: func(uid types.UID) bool {
			state, _ := opts.Pods.Pod(string(uid))
			return state.Admitted
		},
		Node: func() *corev1.Node {
			if node := opts.Node(); node.UID != "" {
				return node
			}
			return nil
		},
	})
	return p, err
}

// podUIDs returns the UIDs of the pods with this namespace and name, including pods that no source lists any more.
func podUIDs(pods []lifecycle.PodState, namespace, name string) (uids []types.UID) {
	for _, p := range pods {
		if p.Pod.Namespace == namespace && p.Pod.Name == name {
			uids = append(uids, types.UID(p.Pod.UID))
		}
	}
	return uids
}

// Accounts returns the service accounts of pods, for credential provider plugins that need tokens. If p is nil, as in an
// agent without an API server, it returns nil.
func (p *Parts) Accounts() credential.Accounts {
	if p == nil {
		return nil
	}
	return p.Source.Tokens().Accounts()
}

// Hooks returns hooks for [lifecycle.Options], which report changes of pods to the components of p.
func (p *Parts) Hooks() lifecycle.Hooks {
	return lifecycle.Hooks{
		StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) {
			p.Statuses.Changed(pod, st)
			if qos.IsStatic(pod) {
				p.Mirrors.Changed() // the pod may be admitted by now
			}
		},
		ResourcesReleased: p.Statuses.ResourcesReleased,
		PodRemoved: func(pod cri.PodIdentity) {
			p.Statuses.PodRemoved(pod)
			p.retainer.PodRemoved(pod.UID)
			p.Mirrors.Changed()
		},
		PodRefused: p.Recorder.PodRefused,
	}
}

// Set passes the pods of one source to the components that need them: the manager of mirror pods and the retainer of API
// objects. Call it after lifecycle.Reconciler.Set, with the same argument.
func (p *Parts) Set(set lifecycle.PodSet) {
	if set.Source != API {
		p.Mirrors.Set(set)
	}
	p.retainer.Set(set)
}

// RunPods calls set with the valid pods that the API server lists, after the first list and after each change, until ctx
// ends. It logs the errors of invalid pods.
func (p *Parts) RunPods(ctx context.Context, set func(lifecycle.PodSet)) error {
	return p.Source.Pods().Run(ctx, func(u Update) {
		for _, err := range u.Errs {
			p.log.Error("pod of the API server is invalid", "error", err)
		}
		set(u.PodSet)
	})
}

// MirrorCount returns the number of mirror pods of the node in the API server. A nil p has none.
func (p *Parts) MirrorCount() int {
	if p == nil {
		return 0
	}
	return p.Source.Pods().mirrorCount()
}
