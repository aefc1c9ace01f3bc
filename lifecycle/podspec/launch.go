// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// Launch has the data for the config of a container that is known only when the container is about to be created.
type Launch struct {
	Attempt  uint32     // restart count
	ImageRef string     // reference of the image to run, as returned by the pull or the image status; empty: the image name in the pod
	Image    *cri.Image // the image, from which the user is read; nil: the runtime has no images
	PodIPs   []string   // addresses of the pod's sandbox, in any order; empty on the host network, where the addresses of the node are used
	TargetID string     // ID of the target container of an ephemeral container; empty: none

	// References has the objects that the environment of the container refers to, from [ResolveReferences].
	References References
	// Env has environment variables from the node, for example of devices. If the container has a variable of the same name, that
	// variable is used. Variables of the container can refer to those in Env.
	Env []cri.EnvVar
	// Annotations has additional annotations, for example of devices. If this package sets an annotation of the same name, its
	// value is used.
	Annotations map[string]string

	// Volumes has the volumes of the pod, by name.
	Volumes map[string]Volume
	// SubPath returns the host path of a subPath in volume v. mount is the index of the volume mount in the container. SubPath
	// must ensure that the path does not leave the volume while the container is created, because the pod controls the symbolic
	// links in it. The status of the pod includes the error. Nil: volume mounts with a subPath are refused.
	SubPath func(mount int, v Volume, subPath string) (hostPath string, err error)

	HostsPath          string // host path of the hosts file for the pod; empty: containers use the file of their image
	TerminationLogPath string // host path of the termination message file; empty: no file is mounted

	Mounts     []cri.Mount  // additional mounts, for example of devices
	Devices    []cri.Device // devices of the container
	CDIDevices []string     // names of CDI devices of the container

	CPUs        string // cpuset.cpus, for example "0-3,7"; empty: the CPUs of the parent cgroup
	MemoryNodes string // cpuset.mems, NUMA nodes for example "0,2"; empty: those of the parent cgroup
}

// envSources returns the data for the environment of a container: config maps and secrets, volumes, variables of the node,
// and IP addresses.
func (l Launch) envSources(opts Options) podenv.Sources {
	return podenv.Sources{
		References: l.References.envReferences(), Volumes: hostPaths(l.Volumes), Node: l.Env,
		PodIPs: l.PodIPs, HostIPs: opts.NodeIPs(), Allocatable: opts.allocatableResources(),
	}
}
