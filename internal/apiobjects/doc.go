// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiobjects has the objects of an API server that pods of one node refer to: config maps and secrets, services, claims,
// volumes, CSI drivers and runtime classes, cluster trust bundles, and the tokens of service accounts and the certificates of pods. It
// neither knows which pods there are nor runs them.
//
// # Model
//
// [Objects] is what package podenv, volume and intree take, and comes from Source.Objects of package apiserver, which shares one client
// with the other parts of an agent:
//
//	objects, err := source.Objects(apisource.ObjectsOptions{})
//	lifecycleOptions.Objects, intreeOptions.Objects = objects, objects.Volumes()
//	volumeOptions.Claims, volumeOptions.Watcher = objects, objects
//	err = objects.Run(ctx) // and objects.Retain(pods) whenever the pods change
//
// Variables are read when a container starts; what volumes show is watched, one object at a time, because a node may not list the
// others. [Objects.EditNode] and [Objects.EditCSINode] do what a csi.Node has to, and [Objects.ClaimExpanded] what
// volume.Hooks.Expanded asks for. With [Options].Keep and [Options].Services what is needed to start containers again is on disk, for an
// agent that is started while the API server is away: what variables and volumes are made of, claims, persistent volumes with their
// attachments and drivers, and runtime classes. [Tokens] has tokens issued that are bound to a pod.
//
// # Concurrency
//
// All methods can be called from several goroutines; Run once.
//
// # Errors
//
// An object that does not exist is an error that wraps fs.ErrNotExist; any other error is that it cannot be known. None has the data of
// a secret or a token in it.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/util/manager, secret, configmap and token of Kubernetes 1.37. DIFFERENCES.md has the list.
//
// Test kit: package apiservertest has an API server in memory.
package apiobjects
