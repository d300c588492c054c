//go:build mpi

#include "shim.h"

#include <stdlib.h>
#include <unistd.h>

// meeting has the processes of ranks, for other messages.
static MPI_Comm ranks = MPI_COMM_NULL, meeting = MPI_COMM_NULL, host = MPI_COMM_NULL;

int spmoe_begin(int *provided) {
	int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	return rc;
}

int spmoe_order(int *key, int *rank, int *size) {
	int rc = MPI_Comm_rank(MPI_COMM_WORLD, key);
	if (rc == MPI_SUCCESS) rc = MPI_Bcast(key, 1, MPI_INT, 0, host);
	// Of two ranks with equal keys, that with the lower number in MPI_COMM_WORLD comes first.
	if (rc == MPI_SUCCESS) rc = MPI_Comm_split(MPI_COMM_WORLD, 0, *key, &ranks);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_dup(ranks, &meeting);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(ranks, rank);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_size(ranks, size);
	return rc;
}

// Messages of single processes tell which one is missing. MPI_Allgather does not, and waits for ever.
int spmoe_gather(int everywhere, void *mine, int n, void *all, double limit, int *missing) {
	MPI_Comm c = everywhere ? meeting : host;
	int size, come, rc = MPI_Comm_size(c, &size);
	MPI_Request *r = malloc(2 * size * sizeof *r);
	*missing = -1;
	if (!r) return MPI_ERR_NO_MEM;
	for (int i = 0; rc == MPI_SUCCESS && i < size; i++) {
		rc = MPI_Irecv((char *)all + (size_t)i * n, n, MPI_BYTE, i, 0, c, &r[i]);
		if (rc == MPI_SUCCESS) rc = MPI_Isend(mine, n, MPI_BYTE, i, 0, c, &r[size + i]);
	}
	double end = MPI_Wtime() + limit;
	for (int i = 0; rc == MPI_SUCCESS && *missing < 0 && i < 2 * size; i += come) {
		rc = MPI_Test(&r[i], &come, MPI_STATUS_IGNORE);
		if (come) continue;
		if (limit > 0 && MPI_Wtime() > end) *missing = i % size;
		usleep(100);
	}
	free(r);
	return rc;
}

int spmoe_exchange(void *src, int *scounts, int *sdispls, void *dst, int *rcounts, int *rdispls) {
	return MPI_Alltoallv(src, scounts, sdispls, MPI_BYTE, dst, rcounts, rdispls, MPI_BYTE, ranks);
}

static int grow(spmoe_requests *all) {
	int room = all->room ? 2 * all->room : 64;
	void *requests = realloc(all->requests, room * sizeof *all->requests);
	if (requests) all->requests = requests;
	void *statuses = realloc(all->statuses, room * sizeof *all->statuses);
	if (statuses) all->statuses = statuses;
	void *indices = realloc(all->indices, room * sizeof *all->indices);
	if (indices) all->indices = indices;
	if (!requests || !statuses || !indices) return MPI_ERR_NO_MEM;
	all->room = room;
	return MPI_SUCCESS;
}

int spmoe_start(spmoe_requests *all, int n, int receives, void *data, int bytes, int peer, int tag) {
	if (n == all->room) {
		int rc = grow(all);
		if (rc != MPI_SUCCESS) return rc;
	}
	MPI_Request *r = &all->requests[n];
	return receives ? MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, ranks, r) : MPI_Isend(data, bytes, MPI_BYTE, peer, tag, ranks, r);
}

int spmoe_test(spmoe_requests *all, int n, spmoe_ended *list, int *count) {
	*count = 0;
	int rc = MPI_Testsome(n, all->requests, count, all->indices, all->statuses);
	if (rc != MPI_SUCCESS && rc != MPI_ERR_IN_STATUS) return rc;
	if (*count == MPI_UNDEFINED) *count = 0;
	for (int i = 0; i < *count; i++) {
		list[i].index = all->indices[i];
		list[i].error = rc == MPI_ERR_IN_STATUS ? all->statuses[i].MPI_ERROR : MPI_SUCCESS;
		list[i].bytes = 0;
		if (list[i].error == MPI_SUCCESS) MPI_Get_count(&all->statuses[i], MPI_BYTE, &list[i].bytes);
	}
	return MPI_SUCCESS;
}

void spmoe_replace(spmoe_requests *all, int i, int last) { all->requests[i] = all->requests[last]; }

int spmoe_finalizes(void) {
#ifdef MPICH_VERSION
	return 0;
#else
	return 1;
#endif
}

int spmoe_barrier(void) { return MPI_Barrier(ranks); }

int spmoe_tags(void) {
	int *most, found;
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
	return found ? *most : 32767;
}
