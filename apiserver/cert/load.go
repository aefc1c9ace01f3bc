// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
)

// Load returns the REST config in opts.Kubeconfig, for an agent that does not rotate its certificate. With opts.BootstrapKubeconfig it first calls
// [Bootstrap], and blocks until the kubeconfig has a valid certificate or ctx ends. Other credentials that the API server will refuse are logged:
// static pods can run without them.
func Load(ctx context.Context, opts ClientOptions) (*rest.Config, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.BootstrapKubeconfig != "" {
		if err := Bootstrap(ctx, opts); err != nil {
			return nil, err
		}
	}
	config, err := LoadKubeconfig(opts.Kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := CheckCredentials(config, opts.NodeName, time.Now()); err != nil {
		opts.Logger.Error("kubeconfig", "file", opts.Kubeconfig, "error", err)
	}
	config.QPS, config.Burst = opts.QPS, opts.Burst
	if opts.Dial != nil {
		config.Dial = opts.Dial
	}
	return config, nil
}
