// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// Launch is what is known of a container only when it is about to be created.
type Launch struct {
	Attempt  uint32     // how often it was restarted
	ImageRef string     // what to run, as the pull or the image's status gave it; empty: the name in the pod
	Image    *cri.Image // the image, for its user; nil where the runtime holds no images
	PodIPs   []string   // of the sandbox, in any order; where there are none on the host's network, the node's are taken
	TargetID string     // of the container whose processes an ephemeral container sees, if it asks for one

	// References are the objects that the variables of the container refer to, from [ResolveReferences].
	References References
	// Env are variables that the node adds, such as those of devices. Those of the container win, and can refer to
	// them.
	Env []cri.EnvVar
	// Annotations are those that devices ask for. The package's own win.
	Annotations map[string]string

	// Volumes are those of the pod, by name.
	Volumes map[string]Volume
	// SubPath returns the path on the host of something within a volume, for the mount with that index. It has to see
	// to it that the path does not lead out of the volume while the container is set up: what is inside belongs to the
	// pod, symbolic links too. Its error becomes part of the pod's status. Nil refuses such mounts.
	SubPath func(mount int, v Volume, subPath string) (hostPath string, err error)

	HostsPath          string // of the file with what [HostsFile] returned; empty: the image's own is left
	TerminationLogPath string // of the file for the termination message; empty: none is mounted

	Mounts     []cri.Mount  // those that devices need
	Devices    []cri.Device // those that the container was given
	CDIDevices []string     // likewise, by their qualified names
}

// sources returns what the variables of a container come from.
func (l Launch) envSources(o Options) podenv.Sources {
	return podenv.Sources{
		References: l.References.envReferences(), Volumes: hostPaths(l.Volumes), Node: l.Env,
		PodIPs: l.PodIPs, HostIPs: o.NodeIPs(), Allocatable: o.allocatableResources(),
	}
}
