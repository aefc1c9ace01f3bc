// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/nowait"
	"github.com/seed81659283/nodeagent/internal/projquota"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/internal/volume/trustbundle"
	"github.com/seed81659283/nodeagent/volume"
)

// Objects reads the config maps and secrets whose data volumes contain as files. If an object does not exist, the error wraps
// [fs.ErrNotExist]; after any other error it is unknown whether it exists. Package objects has implementations.
type Objects interface {
	// ConfigMap returns a config map. The caller does not modify it.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret with all values in Data. The caller does not modify it.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Certificates provides the certificates of pods. [*CertificateKeeper] implements it. If an implementation also has a method
// Forget(podUID string), that is called when a projected volume of the pod is torn down.
type Certificates interface {
	// Certificate returns the certificate for the source with index source of a projected volume.
	Certificate(ctx context.Context, pod *corev1.Pod, volume string, source int) (volume.PodCertificate, error)
}

// forgetter is an optional interface of [Certificates].
type forgetter interface {
	// Forget drops the certificates of a pod whose projected volume was torn down.
	Forget(podUID string)
}

// Options have the sources from which the files of volumes are created. If a source is nil, pods that need it are rejected.
type Options struct {
	Objects      Objects                  // nil: config maps and secrets are refused
	Tokens       volume.TokenIssuer       // nil: service account tokens are refused
	TrustBundles volume.TrustBundleLister // nil: cluster trust bundles are refused
	Certificates Certificates             // nil: pod certificates are refused
	// Allocatable returns the allocatable resources of the node. The memory limits the size of each tmpfs. Files of downwardAPI
	// volumes show these resources for containers without limits. Nil: unknown.
	Allocatable func() corev1.ResourceList
}

// node is the state that the plugins share.
type node struct {
	options   Options
	unmounter mount.Unmounter
	binds     mount.Unmounter // for bind mounts: never unmounts by force, because other pods use the file system
	calls     nowait.Calls    // calls into file systems that may hang
	projects  projquota.Projects
}

func (n *node) nodeAllocatable() corev1.ResourceList {
	if n.options.Allocatable == nil {
		return nil
	}
	return n.options.Allocatable()
}

// Plugins returns the plugins of this package for volume.Options.Plugins. The keys are the names of the plugins, such as
// [volume.EmptyDir].
func Plugins(opts Options) map[string]volume.Plugin {
	n := &node{options: opts}
	n.binds.NoForce = true
	files := func(memory bool) *fileVolume { return &fileVolume{node: n, memory: memory} }
	projected := files(true)
	if opts.Tokens != nil {
		projected.tokens = token.NewCache(opts.Tokens, nil)
	}
	if opts.TrustBundles != nil {
		projected.bundles = trustbundle.NewReader(opts.TrustBundles)
	}
	return map[string]volume.Plugin{
		volume.EmptyDir:    &emptyDir{n},
		volume.HostPath:    &hostPath{n},
		volume.ConfigMap:   files(false),
		volume.Secret:      files(true),
		volume.DownwardAPI: files(true),
		volume.Projected:   projected,
		volume.Local:       &local{n},
		volume.NFS:         &nfs{n},
		volume.GitRepo:     gitRepo{},
	}
}

var (
	_ volume.Plugin        = (*emptyDir)(nil)
	_ volume.UsageProvider = (*emptyDir)(nil)
	_ volume.Plugin        = gitRepo{}
	_ volume.Plugin        = (*hostPath)(nil)
	_ volume.Checker       = (*hostPath)(nil)
	_ volume.Plugin        = (*fileVolume)(nil)
	_ volume.Checker       = (*fileVolume)(nil)
	_ volume.Refresher     = (*fileVolume)(nil)
	_ volume.UsageProvider = (*fileVolume)(nil)
)
