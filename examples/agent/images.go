// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// pullImages gives pods the images of registries, also of those that want credentials.
func (a *agent) pullImages(ctx context.Context, o *lifecycle.Options) error {
	providers := []credential.Provider{credential.Files(a.DockerConfigs)}
	if len(a.CredentialPlugins.Providers) > 0 {
		plugins, err := credential.NewPlugins(a.CredentialPlugins, credential.PluginOptions{BinDir: a.CredentialPluginDir})
		if err != nil {
			return err
		}
		providers = append(providers, plugins)
	}
	puller, err := images.New(a.client, a.client, images.Options{
		Parallel: a.ParallelPulls, Providers: providers, Records: a.state("image_manager"), Logger: a.log, Hooks: a.meter.Images(a.imageEvents()),
	})
	if err != nil {
		return err
	}
	o.Images = lifecycle.Images{Puller: puller, Objects: o.Objects}
	if err := puller.Recover(ctx); err != nil {
		return err
	}
	return a.collectImages(puller)
}
