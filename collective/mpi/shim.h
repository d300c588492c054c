// What Go asks of MPI, whose handles are integers in one and pointers in another.

#include <mpi.h>

// Every function returns a code of MPI's.

// spmoe_begin starts MPI and finds the processes of this host.
int spmoe_begin(int *provided);

// spmoe_order numbers the ranks host by host. key is the first of this host in MPI_COMM_WORLD, by which hosts are told apart.
int spmoe_order(int *key, int *rank, int *size);

// spmoe_gather brings n bytes of each process to all, of the world or of this host. After limit seconds, missing is one that has not come; otherwise -1.
int spmoe_gather(int everywhere, void *mine, int n, void *all, double limit, int *missing);

int spmoe_exchange(void *src, int *scounts, int *sdispls, void *dst, int *rcounts, int *rdispls);

// Requests are in an array, dense: spmoe_test says which of n have ended, of which the caller then closes the gaps by spmoe_replace.
typedef struct {
	MPI_Request *requests;
	MPI_Status *statuses;
	int *indices;
	int room;
} spmoe_requests;

typedef struct {
	int index, bytes, error;
} spmoe_ended;

int spmoe_start(spmoe_requests *all, int n, int receives, void *data, int bytes, int peer, int tag);
int spmoe_test(spmoe_requests *all, int n, spmoe_ended *list, int *count);
void spmoe_replace(spmoe_requests *all, int i, int last);

// spmoe_finalizes says whether MPI_Finalize can be called.
int spmoe_finalizes(void);

int spmoe_barrier(void);

// spmoe_tags is the largest tag.
int spmoe_tags(void);
