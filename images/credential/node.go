// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

// NodeProviders returns the providers that a kubelet uses for the credentials of its node: first files, then the plugins in the
// configuration plugins, which are created with opts. The error reports an invalid plugin configuration, as in [NewPlugins].
func NodeProviders(files Files, plugins PluginConfig, opts PluginOptions) ([]Provider, error) {
	providers := []Provider{files}
	if len(plugins.Providers) > 0 {
		p, err := NewPlugins(plugins, opts)
		if err != nil {
			return nil, err
		}
		providers = append(providers, p)
	}
	return providers, nil
}
