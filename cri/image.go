// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"log/slog"
	"strconv"
	"time"
)

// ImageSpec identifies an image.
type ImageSpec struct {
	Image              string // an image reference or an ID
	UserSpecifiedImage string // the image as written in the pod spec
	Annotations        map[string]string
	RuntimeHandler     string // the runtime handler whose image store is used; empty: the default
	ImageRef           string // resolved reference; set by the runtime in results
}

// Image is an image in the runtime's image store.
type Image struct {
	ID          string
	RepoTags    []string
	RepoDigests []string
	Size        uint64 // bytes on disk
	UID         *int64 // user ID from the image config; nil if the config has none
	Username    string // user name from the image config, if it is not numeric
	Spec        ImageSpec
	Pinned      bool // exempt from garbage collection
}

// Auth is a credential for an image registry. Its formatting methods (String, GoString, LogValue, MarshalJSON) omit the secrets,
// so that logs never contain them.
type Auth struct {
	Username      string
	Password      string
	Auth          string // base64 of "user:password"
	ServerAddress string
	IdentityToken string
	RegistryToken string
}

// String returns the user name and the server of the credential, without its secrets.
func (a Auth) String() string {
	if a.ServerAddress == "" {
		return "credential of " + a.Username
	}
	return "credential of " + a.Username + " at " + a.ServerAddress
}

// GoString returns a.String(), so that the format %#v omits the secrets.
func (a Auth) GoString() string { return a.String() }

// LogValue returns a.String(), so that logs of package log/slog contain no secrets.
func (a Auth) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalJSON returns a.String() as a JSON string, so that logs in JSON contain no secrets. The result cannot be decoded into an
// Auth.
func (a Auth) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(a.String())), nil }

// ImageUsage is the usage of the file systems that store images and writable container layers.
type ImageUsage struct {
	Images     []FilesystemUsage // file systems that store images
	Containers []FilesystemUsage // file systems that store writable layers; empty if they are those of Images
}

// FilesystemUsage is the usage of one file system. A nil number was not reported by the runtime.
type FilesystemUsage struct {
	Time       time.Time
	Mountpoint string
	UsedBytes  *uint64
	InodesUsed *uint64
}
