// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/qos"
)

// cluster is the API server's side of a node: the pods to run, the objects that pods refer to, and the statuses and events that go back.
type cluster struct {
	agent    *Agent
	source   *apiserver.Source
	objects  *apiserver.Objects
	recorder *apiserver.Recorder
	statuses *apiserver.Statuses
	mirrors  *apiserver.Mirrors
	retainer *apiserver.Retainer
	lease    *heartbeat.Lease
}

// connect makes the parts that pods need of the API server. It sends nothing.
func (a *Agent) connect() (err error) {
	if !a.config.joins() {
		return nil
	}
	config, err := a.identify()
	if err != nil {
		return err
	}
	c := &cluster{agent: a}
	wait := func(ctx context.Context) error { return a.node.Reporter.Registered(ctx) }
	if c.source, err = apiserver.New(config, apiserver.Options{NodeName: a.config.Node.NodeName, WaitForNode: wait, Logger: a.log}); err != nil {
		return err
	}
	if c.objects, err = a.openObjects(c.source); err != nil {
		return err
	}
	c.retainer = c.source.Retainer(c.objects, a.pods.Pods)
	c.recorder = c.source.Recorder(apiserver.RecorderOptions{
		Pod: c.pod, NodeUID: func() types.UID { return a.node.Node().UID }, Logger: a.log,
	})
	a.add("objects of the API server", c.objects.Run)
	a.add("event recorder", c.recorder.Run)
	a.cluster = c
	if err := c.report(config); err != nil {
		return err
	}
	return a.requestServingCertificate(config, func() []corev1.NodeAddress { return a.node.Node().Status.Addresses })
}

// openObjects returns the objects that pods refer to. Without keepObjects it removes the copies on disk of an earlier agent.
func (a *Agent) openObjects(source *apiserver.Source) (*apiserver.Objects, error) {
	o, kept := apiserver.ObjectsOptions{Services: a.config.path("services"), Logger: a.log}, a.config.path("objects")
	if a.config.Node.KeepObjects {
		o.Keep = kept
	} else if err := os.RemoveAll(kept); err != nil {
		return nil, err
	}
	return source.Objects(o)
}

// pod returns a pod that the agent works on, or nil.
func (c *cluster) pod(uid string) *corev1.Pod {
	state, _ := c.agent.pods.Pod(uid)
	return state.Spec
}

// hooks report the changes of pods to the API server.
func (c *cluster) hooks() lifecycle.Hooks {
	return lifecycle.Hooks{
		Status: func(pod *corev1.Pod, st *corev1.PodStatus) {
			c.statuses.Changed(pod, st)
			if qos.IsStatic(pod) {
				c.mirrors.Changed() // it may be admitted by now
			}
		},
		Left: func(pod cri.PodIdentity) { c.statuses.Left(pod) },
		Gone: func(pod cri.PodIdentity) {
			c.statuses.Gone(pod)
			c.retainer.Gone(pod.UID)
			c.mirrors.Changed()
		},
		Refused: c.recorder.Refused,
	}
}

// join makes the parts that hand statuses and mirror pods to the API server, for the pods of the reconciler.
func (a *Agent) join() (err error) {
	c := a.cluster
	if c == nil {
		return nil
	}
	c.statuses, err = c.source.Statuses(apiserver.StatusesOptions{
		Pods: a.pods.Pods, MayRun: a.pods.MayRun, Logger: a.log, Hooks: apiserver.StatusHooks{Sent: a.meter.StatusSent()},
	})
	if err != nil {
		return err
	}
	c.mirrors, err = c.source.Mirrors(apiserver.MirrorsOptions{
		Sources: a.config.staticSources(&a.options), Running: c.podsNamed, Admitted: func(uid types.UID) bool {
			state, _ := a.pods.Pod(string(uid))
			return state.Admitted
		},
		Node: func() *corev1.Node {
			if node := a.node.Node(); node.UID != "" {
				return node
			}
			return nil
		},
	})
	a.add("statuses", c.statuses.Run)
	a.add("mirror pods", c.mirrors.Run)
	a.add("node status", a.node.Reporter.Run)
	a.add("node lease", c.lease.Run)
	return err
}

// podsNamed returns the UIDs of the pods of a name that the agent runs or terminates, whether a source lists them or not.
func (c *cluster) podsNamed(namespace, name string) (uids []types.UID) {
	for _, p := range c.agent.pods.Pods() {
		if p.Pod.Namespace == namespace && p.Pod.Name == name {
			uids = append(uids, types.UID(p.Pod.UID))
		}
	}
	return uids
}

// watch follows the pods of the API server.
func (c *cluster) watch(ctx context.Context, set func(lifecycle.PodSet)) error {
	return c.source.Pods().Run(ctx, func(u apiserver.Update) {
		for _, err := range u.Errs {
			c.agent.log.Error("pod of the API server", "error", err)
		}
		set(u.PodSet)
	})
}

// setPods records the pods of a source.
func (c *cluster) setPods(s lifecycle.PodSet) {
	if s.Source != apiserver.API {
		c.mirrors.Set(s)
	}
	c.retainer.Set(s)
}
