// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// Launch has the data of a container that is known only when it is about to be created.
type Launch struct {
	Attempt  uint32     // restart count
	ImageRef string     // image to run, as the pull or the image status returned it; empty: the image name in the pod
	Image    *cri.Image // the image, for its user; nil: the runtime has no images
	PodIPs   []string   // addresses of the sandbox, in any order; empty on the host network: those of the node
	TargetID string     // ID of the target container of an ephemeral container; empty: none

	// References has the objects that the environment of the container refers to, from [ResolveReferences].
	References References
	// Env has variables of the node, for example of devices. Variables of the container override them, and can refer to them.
	Env []cri.EnvVar
	// Annotations has more annotations, for example of devices. The annotations of this package override them.
	Annotations map[string]string

	// Volumes has the volumes of the pod, by name.
	Volumes map[string]Volume
	// SubPath returns the host path of a subPath in volume v, for the volume mount with index mount. It must ensure that the path
	// does not leave the volume while the container is created, because the pod controls symbolic links in it. Its error is part
	// of the pod's status. Nil: such mounts are refused.
	SubPath func(mount int, v Volume, subPath string) (hostPath string, err error)

	HostsPath          string // host path of the hosts file; empty: the image's file is used
	TerminationLogPath string // host path of the termination message file; empty: it is not mounted

	Mounts     []cri.Mount  // more mounts, for example of devices
	Devices    []cri.Device // devices of the container
	CDIDevices []string     // names of CDI devices of the container
}

// envSources returns the data from which the container's environment is resolved: config maps and secrets, volumes, variables of
// the node, and addresses.
func (l Launch) envSources(opts Options) podenv.Sources {
	return podenv.Sources{
		References: l.References.envReferences(), Volumes: hostPaths(l.Volumes), Node: l.Env,
		PodIPs: l.PodIPs, HostIPs: opts.NodeIPs(), Allocatable: opts.allocatableResources(),
	}
}
