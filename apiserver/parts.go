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

// NodePods are the pods that a node runs. *lifecycle.Reconciler and *lifecycle.Handle implement it.
type NodePods interface {
	Pods() []lifecycle.PodState                            // see [lifecycle.Reconciler.Pods]
	Pod(uid string) (state lifecycle.PodState, found bool) // see [lifecycle.Reconciler.Pod]
	MayRun(uid string) bool                                // see [lifecycle.Reconciler.MayRun]
}

// PartsOptions configure [Parts]. NodeName, Pods and Node are required.
type PartsOptions struct {
	// NodeName is the name of the Node object.
	NodeName string
	// Pods are the pods of the node.
	Pods NodePods
	// Node returns the Node object as the API server has it. Without a UID there is no Node object yet.
	Node func() *corev1.Node
	// WaitForNode is that of [Options]. Nil: nothing waits.
	WaitForNode func(ctx context.Context) error
	// StaticSources names the sources of static pods, see [MirrorsOptions].Sources. Empty: one complete set of any source is enough.
	StaticSources []string
	// ServicesFile is that of [ObjectsOptions]. Empty: the services are not kept on disk.
	ServicesFile string
	// CacheDir is the directory for copies of the objects of pods. NewParts removes it unless KeepObjects is set. Empty: there is no directory.
	CacheDir     string
	CacheObjects bool
	// StatusSent is called when the API server has accepted a status. Nil is not called.
	StatusSent func(pod cri.PodIdentity, took time.Duration)
	Logger     *slog.Logger // nil discards
}

// Parts are the parts of this package that a node of a cluster needs, connected. Make them with [NewParts]. The caller runs Objects, Recorder,
// Statuses and Mirrors, and passes the pods to its Reconciler with [Parts.RunPods].
type Parts struct {
	Source   *Source
	Objects  *Objects
	Recorder *Recorder
	Statuses *Statuses
	Mirrors  *Mirrors

	retainer *Retainer
	log      *slog.Logger
}

// NewParts creates the parts of a node. It sends nothing. An error names the option or the field of config that is missing.
func NewParts(config *rest.Config, o PartsOptions) (*Parts, error) {
	if o.Pods == nil || o.Node == nil {
		return nil, errors.New("apiserver.NewParts: PartsOptions.Pods and PartsOptions.Node: required")
	}
	p := &Parts{log: o.Logger}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if p.Source, err = New(config, Options{NodeName: o.NodeName, WaitForNode: o.WaitForNode, Logger: p.log}); err != nil {
		return nil, err
	}
	kept := ObjectsOptions{ServicesFile: o.ServicesFile, Logger: p.log}
	if o.CacheObjects {
		kept.CacheDir = o.CacheDir
	} else if err := os.RemoveAll(o.CacheDir); err != nil { // copies of a previous agent
		return nil, err
	}
	if p.Objects, err = p.Source.Objects(kept); err != nil {
		return nil, err
	}
	p.retainer = p.Source.Retainer(p.Objects, o.Pods.Pods)
	p.Recorder = p.Source.Recorder(RecorderOptions{
		Pod: func(uid string) *corev1.Pod {
			state, _ := o.Pods.Pod(uid)
			return state.Spec
		},
		NodeUID: func() types.UID { return o.Node().UID }, Logger: p.log,
	})
	p.Statuses, err = p.Source.Statuses(StatusesOptions{
		Pods: o.Pods.Pods, MayRun: o.Pods.MayRun, Logger: p.log, Hooks: StatusHooks{StatusSent: o.StatusSent},
	})
	if err != nil {
		return nil, err
	}
	p.Mirrors, err = p.Source.Mirrors(MirrorsOptions{
		Sources:     o.StaticSources,
		RunningUIDs: func(namespace, name string) []types.UID { return podUIDs(o.Pods.Pods(), namespace, name) },
		Admitted: func(uid types.UID) bool {
			state, _ := o.Pods.Pod(string(uid))
			return state.Admitted
		},
		Node: func() *corev1.Node {
			if node := o.Node(); node.UID != "" {
				return node
			}
			return nil
		},
	})
	return p, err
}

// uidsOf returns the UIDs of the pods with a namespace and a name, whether a source lists them or not.
func podUIDs(pods []lifecycle.PodState, namespace, name string) (uids []types.UID) {
	for _, p := range pods {
		if p.Pod.Namespace == namespace && p.Pod.Name == name {
			uids = append(uids, types.UID(p.Pod.UID))
		}
	}
	return uids
}

// Accounts returns the service accounts of pods, for credential provider plugins that get tokens of them. A nil p has none: the node belongs to no
// cluster.
func (p *Parts) Accounts() credential.Accounts {
	if p == nil {
		return nil
	}
	return p.Source.Tokens().Accounts()
}

// Hooks returns hooks that report the changes of pods to the API server. They are for [lifecycle.Options].
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

// Set records the pods of a source, after the Reconciler was given them.
func (p *Parts) Set(s lifecycle.PodSet) {
	if s.Source != API {
		p.Mirrors.Set(s)
	}
	p.retainer.Set(s)
}

// RunPods calls set with the pods of the API server, at first and after each change, until ctx ends. It logs pods that are invalid.
func (p *Parts) RunPods(ctx context.Context, set func(lifecycle.PodSet)) error {
	return p.Source.Pods().Run(ctx, func(u Update) {
		for _, err := range u.Errs {
			p.log.Error("pod of the API server", "error", err)
		}
		set(u.PodSet)
	})
}
