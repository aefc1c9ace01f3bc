// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// resolveUser returns the user and groups that a security context requests, or nil for the agent's user.
func resolveUser(security cri.ContainerSecurity) (*shim.User, error) {
	if security.RunAsUser == nil && security.RunAsUsername == "" && security.RunAsGroup == nil && len(security.SupplementalGroups) == 0 {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, nil // the request is for the agent's own user, or is ignored
	}
	// The agent's group, which may be root, is only used if no user is requested.
	ids := []int64{int64(os.Geteuid()), int64(os.Getegid())}
	var known *user.User
	switch {
	case security.RunAsUser != nil:
		ids[0], ids[1] = *security.RunAsUser, *security.RunAsUser // the group of a user that the host does not know
		known, _ = user.LookupId(strconv.FormatInt(*security.RunAsUser, 10))
	case security.RunAsUsername != "":
		var err error
		if known, err = user.Lookup(security.RunAsUsername); err != nil {
			return nil, fmt.Errorf("run_as_username %q: %w", security.RunAsUsername, err)
		}
		if ids[0], err = strconv.ParseInt(known.Uid, 10, 64); err != nil {
			return nil, fmt.Errorf("run_as_username %q: %w", security.RunAsUsername, err)
		}
	}
	if known != nil {
		if gid, err := strconv.ParseInt(known.Gid, 10, 64); err == nil {
			ids[1] = gid
		}
	}
	if security.RunAsGroup != nil {
		ids[1] = *security.RunAsGroup
	}
	u := &shim.User{Groups: make([]uint32, 0, len(security.SupplementalGroups))}
	for i, id := range append(ids, security.SupplementalGroups...) {
		if id < 0 || id >= 1<<32-1 {
			return nil, fmt.Errorf("security context: %d is not a user or group ID", id)
		}
		if i >= 2 {
			u.Groups = append(u.Groups, uint32(id))
		}
	}
	u.UID, u.GID = uint32(ids[0]), uint32(ids[1])
	return u, nil
}

// ContainerUser converts the user of a shim to the user in a [cri.Container].
func ContainerUser(shimUser *shim.User) *cri.ContainerUser {
	c := &cri.ContainerUser{UID: int64(shimUser.UID), GID: int64(shimUser.GID)}
	for _, g := range shimUser.Groups {
		c.SupplementalGroups = append(c.SupplementalGroups, int64(g))
	}
	return c
}
