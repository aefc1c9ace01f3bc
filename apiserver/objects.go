// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import "github.com/seed81659283/nodeagent/internal/apiobjects"

type (
	// Objects has the objects that pods of the node refer to.
	Objects = apiobjects.Objects
	// ObjectsOptions tune [Objects]. The zero value is ready.
	ObjectsOptions = apiobjects.Options
	// VolumeObjects has the config maps and secrets that volumes show.
	VolumeObjects = apiobjects.VolumeObjects
	// Tokens has the API server issue tokens of service accounts, each bound to a pod.
	Tokens = apiobjects.Tokens
	// Accounts knows service accounts and gets tokens for credential provider plugins.
	Accounts = apiobjects.Accounts
)

// Objects returns the objects that pods of the node refer to. It reads nothing but the names of files in Keep, and
// Services; an error says why one of them cannot be used. An agent has one.
func (s *Source) Objects(o ObjectsOptions) (*Objects, error) {
	if o.Logger == nil {
		o.Logger = s.opts.Logger
	}
	return apiobjects.New(s.client, s.opts.NodeName, o)
}

// Tokens returns the tokens of service accounts of pods of the node.
func (s *Source) Tokens() Tokens { return apiobjects.NewTokens(s.client) }
