// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// imageRuntime is a runtime that has images.
type imageRuntime interface {
	cri.Images
	cri.Puller
}

// pullImages makes the engine that pulls the images of pods, also from registries that need credentials.
func (a *Agent) pullImages(ctx context.Context, o *lifecycle.Options) error {
	runtime, ok := a.runtime.(imageRuntime)
	if _, embedded := a.runtime.(*process.Runtime); !ok || embedded { // plain processes run programs of the host, whatever image a pod names
		return nil
	}
	n := &a.config.Node
	providers := []credential.Provider{credential.Files(n.DockerConfigFiles)}
	if len(n.CredentialProviders.Providers) > 0 {
		plugins, err := credential.NewPlugins(n.CredentialProviders, credential.PluginOptions{BinDir: n.CredentialProviderBinDir})
		if err != nil {
			return err
		}
		providers = append(providers, plugins)
	}
	puller, err := images.New(runtime, runtime, images.Options{
		Parallel: int(*a.config.Kubelet.MaxParallelImagePulls), Providers: providers, Records: a.config.path("image_manager"), Logger: a.log,
		Hooks: a.meter.Images(a.options.Hooks.Images, podevents.Images(a.event), images.Hooks{Error: func(err error) { a.log.Warn("image", "error", err) }}),
	})
	if err != nil {
		return err
	}
	o.Images = lifecycle.Images{Puller: puller, Objects: o.Objects}
	if err := puller.Recover(ctx); err != nil || a.options.Ephemeral { // images that fill no disk stay
		return err
	}
	return a.collectImages(runtime, puller)
}
